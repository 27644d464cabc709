package kdsl.tests;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerExtensionsValidatorCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;

/** Lets a server of the test decide whether a broker accepts a token, as the brokers of clouds ask their own. */
public class TokenCheck implements AuthenticateCallbackHandler {
    private final HttpClient client = HttpClient.newHttpClient();
    private URI url;

    @Override
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> logins) {
        url = URI.create((String) logins.get(0).getOptions().get("check"));
    }

    @Override
    public void handle(Callback[] callbacks) throws UnsupportedCallbackException {
        for (Callback callback : callbacks) {
            if (callback instanceof OAuthBearerValidatorCallback) {
                check((OAuthBearerValidatorCallback) callback);
            } else if (!(callback instanceof OAuthBearerExtensionsValidatorCallback)) {
                throw new UnsupportedCallbackException(callback);
            }
        }
    }

    private void check(OAuthBearerValidatorCallback callback) {
        String token = callback.tokenValue();
        try {
            HttpRequest request = HttpRequest.newBuilder(url).POST(HttpRequest.BodyPublishers.ofString(token)).build();
            HttpResponse<String> response = client.send(request, HttpResponse.BodyHandlers.ofString());
            String[] lines = response.body().split("\n");
            if (response.statusCode() == 200) {
                callback.token(new Accepted(token, lines[0], Long.parseLong(lines[1])));
            } else {
                callback.error("invalid_token", null, null);
            }
        } catch (Exception e) {
            callback.error("invalid_token", null, null);
        }
    }

    @Override
    public void close() {}

    private static final class Accepted implements OAuthBearerToken {
        private final String value;
        private final String principal;
        private final long expires;

        Accepted(String value, String principal, long expires) {
            this.value = value;
            this.principal = principal;
            this.expires = expires;
        }

        @Override
        public String value() {
            return value;
        }

        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public long lifetimeMs() {
            return expires;
        }

        @Override
        public String principalName() {
            return principal;
        }

        @Override
        public Long startTimeMs() {
            return null;
        }
    }
}
