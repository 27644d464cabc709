"""A real Apache Kafka on this machine, for tests and for trying things out: no Docker, only Java."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kdsl.errors import listing, nearest, pluralize
from kdsl.java import find_java
from kdsl.retry import Deadline, retry
from kdsl.testing.acls import allow
from kdsl.testing.broker import Broker
from kdsl.testing.errors import BrokerDiedError, LocalKafkaError
from kdsl.testing.kafka_jars import KafkaJars, find_kafka
from kdsl.testing.ports import HOST, answers, free_port, is_free
from kdsl.testing.properties import Ports, broker_properties, check_overrides, properties_text
from kdsl.testing.running import RunningKafka, topic_list
from kdsl.testing.scram import store_users
from kdsl.testing.security import KINDS, Security, Site, Users
from kdsl.testing.service import LocalService
from kdsl.testing.storage import log_dir, open_storage

if TYPE_CHECKING:
    from kdsl.testing.certificates import Certificates
    from kdsl.testing.kerberos import Realm
    from kdsl.testing.tokens import TokenService

_log = logging.getLogger("kdsl.testing")

DEFAULT_USERS: Users = {"kdsl": "kdsl-secret"}

SERVERS = "bootstrap.servers"
_TAKEN = "Address already in use"


class LocalKafka(LocalService, RunningKafka):
    """A real Apache Kafka (KRaft) in separate processes, which end with this one.

    ```python
    with LocalKafka(topics=["orders"]) as kafka:
        kafka.produce("orders", "one", "two")
        print(kafka.bootstrap_servers)
    ```

    Everything listens on 127.0.0.1 only. The first use on a machine fetches Kafka (about 45 MB, half a minute); later
    ones start in two seconds.

    Args:
        brokers: The number of brokers. With three or more, three are controllers, and any one broker may fail. A topic
            has as many replicas, but at most three, unless it is created with another number.
        security: How clients log in. There may be several ways; ``bootstrap_servers`` uses the first (see
            ``through``): ``"plaintext"``, ``"sasl_plain"``, ``"scram"`` (256 and 512), ``"ssl"``, ``"mtls"`` (each
            user has a certificate), ``"sasl_ssl"`` (SCRAM within TLS), ``"oauthbearer"`` (unsigned tokens),
            ``"oauth_signed"`` (tokens of an identity provider that is started too), ``"kerberos"`` (MIT's KDC, which
            must be installed). Keys and certificates are its own, see ``certificates``.
        users: Passwords by user name; the first user is the one of ``client_properties``.
        acls: Whether users need rights from ``allow``. The first user and clients in plaintext may do everything.
        topics: Topics to create: names, or names with their numbers of partitions.
        properties: Broker properties, which override the defaults of this class.
        data_dir: The folder of data and logs. None creates a temporary folder, which is removed when Kafka stops. A
            named folder is kept, and opening it again opens the same cluster.
        port: The port of the first broker, the next one for the second, and so on; free ports if None.
        heap: The maximum heap of each broker, in MB.
        version: Kafka's version, see ``find_kafka``.
        coordinates: Maven coordinates to fetch instead, see ``find_kafka``.
        jars: A folder of Kafka's jars to use instead, see ``find_kafka``.
        timeout: How long the brokers may take to start, in seconds.
        on_progress: Called with a line about each step; None logs to ``kdsl.testing``.

    Raises:
        LocalKafkaError: The number of brokers is below 1, a kind of login is not known or needs users, or a property is
            one that this class sets itself.
    """

    _error = LocalKafkaError
    _folder_prefix = "kdsl-kafka-"

    def __init__(
        self,
        brokers: int = 1,
        *,
        security: Security | Sequence[Security] = "plaintext",
        users: Users | None = None,
        acls: bool = False,
        topics: Mapping[str, int] | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        data_dir: str | Path | None = None,
        port: int | None = None,
        heap: int = 512,
        version: str | None = None,
        coordinates: Sequence[str] | None = None,
        jars: str | Path | None = None,
        timeout: float = 300.0,
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        LocalService.__init__(
            self, timeout=timeout, data_dir=None if data_dir is None else Path(data_dir).expanduser().absolute()
        )
        RunningKafka.__init__(self, "")
        if brokers < 1:
            raise LocalKafkaError(f"brokers={brokers!r}: at least 1 broker is needed")
        self.security = _check_kinds(security)
        self.brokers = brokers
        self._users = dict(DEFAULT_USERS if users is None else users)
        if not self._users and not all(KINDS[kind].anonymous for kind in self.security):
            raise LocalKafkaError(
                f"security={security!r} needs a login, but users= is empty; pass users={{name: password}}, or leave it "
                "out"
            )
        self._acls = acls
        self._site = Site(self._users)
        self._topics = topic_list(topics)
        self._properties = dict(properties or {})
        check_overrides(self._properties)
        self._port = port
        self._heap = heap
        self._source = {"version": version, "coordinates": coordinates, "jars": jars}
        self._on_progress = on_progress or _log.info
        self._nodes: dict[int, Broker] = {}
        self._ports: dict[int, Ports] = {}

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap servers: all brokers, as ``127.0.0.1:port,…``, with the ports of the first kind of login.

        Raises:
            LocalKafkaError: It is not started.
        """
        return self._servers(self.security[0])

    @property
    def client_properties(self) -> dict[str, str]:
        """The settings that a confluent-kafka client needs to connect and log in as the first user.

        If librdkafka does not support the login, they are those for plaintext. Key files that the login needs are
        created if they do not exist.

        Raises:
            LocalKafkaError: It is not started.
        """
        return self.client_of(self.bootstrap_servers).client_properties

    @property
    def java_properties(self) -> dict[str, str]:
        """The properties that a declaration needs to log in as the first user, by Java's names, without the servers.

        Key files that the login needs are created if they do not exist.

        Raises:
            LocalKafkaError: It is not started.
        """
        return self.client_of(self.bootstrap_servers).java_properties

    @property
    def certificates(self) -> Certificates:
        """The authority, the users' certificates, and stores of them in every type.

        At the first use their folder is created, or emptied.

        Raises:
            LocalKafkaError: It is not started.
        """
        _ = self.data_dir
        return self._site.certificates

    @property
    def tokens(self) -> TokenService:
        """The identity provider of the kind ``"oauth_signed"``; without this kind, one that does not run.

        Raises:
            LocalKafkaError: Kafka is not started, or was stopped.
        """
        _ = self.data_dir
        return self._site.tokens

    @property
    def realm(self) -> Realm:
        """The Kerberos realm of the kind ``"kerberos"``; without this kind, one that does not run.

        Its folder is created at the first use.

        Raises:
            LocalKafkaError: It is not started.
        """
        _ = self.data_dir
        return self._site.realm

    @property
    def system_properties(self) -> dict[str, str]:
        """The system properties (``-Dname=value``) of a Java client's JVM: krb5.conf, the URLs of tokens.

        Empty if no kind of login needs them. For signed tokens the file of their public keys is written.

        Raises:
            LocalKafkaError: A kind needs them, and Kafka is not started.
        """
        return self._site.jvm(self.security)

    @property
    def temporary(self) -> bool:
        """Whether the data is deleted when Kafka stops."""
        return self._data_dir is None

    @property
    def nodes(self) -> Mapping[int, Broker]:
        """The broker processes by id; none unless it is started."""
        return self._nodes

    @property
    def running(self) -> bool:
        """Whether it was started and all its brokers run."""
        return bool(self._nodes) and all(node.running for node in self._nodes.values())

    def through(self, security: Security, user: str | None = None) -> RunningKafka:
        """Return the same cluster with another kind of login, or as another user, whose key file is created if needed.

        Args:
            security: One of the declared kinds, or ``"plaintext"``, which is always open.
            user: One of the users; the first if None.

        Raises:
            LocalKafkaError: This cluster does not have the kind or the user, or is not started.
        """
        ways = _add_plaintext(self.security)
        if security not in ways:
            raise LocalKafkaError(f"security={security!r} is not open here; use one of {listing(ways)}")
        name = user if user is not None else next(iter(self._users), "")
        if not KINDS[security].anonymous and name not in self._users:
            raise LocalKafkaError(
                f"There is no user {name!r}{nearest(name, self._users)}; users= has {listing(self._users)}"
            )
        return self._client(self._servers(security), security, name)

    def client_of(self, bootstrap_servers: str) -> RunningKafka:
        """Return a client of a cluster with the same login at another address, as the first user.

        If librdkafka does not support the login, its own operations use this cluster's plaintext listeners. Key files
        that the login needs are created if they do not exist.

        Raises:
            LocalKafkaError: The login has keys or services, and Kafka is not started.
        """
        return self._client(bootstrap_servers, self.security[0], next(iter(self._users), ""))

    def allow(self, user: str, *operations: str, topic: str | None = None, group: str | None = None) -> None:
        """Give a user rights, and wait until they take effect; ``acls`` must be enabled.

        Args:
            user: The user.
            operations: The operations, such as ``"READ"``, ``"WRITE"``, ``"DESCRIBE"``.
            topic: The topic; a name that ends in ``*`` means all topics with this prefix.
            group: The consumer group, written like a topic.

        Raises:
            LocalKafkaError: There is no such operation, the broker refuses, or Kafka is not started.
        """
        allow(self.through("plaintext").admin(), user, operations, topic=topic, group=group)

    def _start_processes(self) -> None:
        """Fetch Kafka if it is missing, start brokers and services for logins, and create users and missing topics.

        After an error, `start` ends what was started.
        """
        java = find_java()
        kafka = find_kafka(java=java, on_progress=self._on_progress, **self._source)  # type: ignore[arg-type]
        open_storage(self.data_dir, brokers=self.brokers, kafka=kafka, java=java)
        self._on_progress(f"starting Kafka {kafka.version} with {pluralize(self.brokers, 'broker')}")
        self._site = Site(self._users, self.data_dir)
        self._site.start(self.security, self.mark)
        self._start_brokers(java, kafka)
        self._add_users()
        self.create_missing(self._topics)

    def _end_processes(self) -> None:
        """End the brokers and the services for their logins, and forget them and all clients.

        Brokers that keep their data get 20 s to shut down.
        """
        self.close()
        nodes, self._nodes, self._ports = list(self._nodes.values()), {}, {}
        if self._data_dir is not None:
            for node in nodes:
                node.terminate()
            deadline = Deadline(20)  # without its controllers a broker would wait for minutes
            for node in nodes:
                node.wait(max(0.0, deadline.remaining))
        for node in nodes:
            node.kill()
        self._site.stop()
        self._site = Site(self._users)  # without the folder, which may be removed now

    def _disown_processes(self) -> None:
        """Close all clients, let the brokers outlive this process, and forget them; `detach` ends the watchdog."""
        self.close()
        for node in self._nodes.values():
            node.disown()
        self._nodes, self._ports = {}, {}

    def kill(self, broker: int = 1) -> None:
        """End one broker at once, as a power failure would (SIGKILL); `start_broker` starts it again with its data.

        Nothing happens to one that has ended.

        Raises:
            LocalKafkaError: There is no such broker.
        """
        self._node(broker).kill()

    def stop_broker(self, broker: int = 1) -> None:
        """Shut one broker down: it hands over its partitions and flushes its data. One that has ended stays so.

        Raises:
            LocalKafkaError: It did not end within 60 s, or there is no such broker.
        """
        node = self._node(broker)
        node.terminate()
        if not node.wait(60):
            raise LocalKafkaError(f"Broker {broker} did not stop within 60 s; its log is {node.log}")

    def start_broker(self, broker: int = 1) -> None:
        """Start a broker again that was killed or stopped, with its port and data, and wait until it serves.

        Raises:
            BrokerDiedError: It ended again, or another broker has ended.
            LocalKafkaError: It runs already, took too long, or does not exist.
        """
        self._node(broker).start()
        self._wait([broker])

    def pause(self, broker: int | None = None) -> None:
        """Freeze one broker, or all if None (SIGSTOP), until `resume`: its port stays open, but it does not answer.

        Errors as `kill`.
        """
        for node in self._nodes.values() if broker is None else [self._node(broker)]:
            node.freeze()

    def resume(self, broker: int | None = None) -> None:
        """Let one broker, or all if None, continue (SIGCONT). Errors as `kill`."""
        for node in self._nodes.values() if broker is None else [self._node(broker)]:
            node.thaw()

    def port(self, broker: int = 1) -> int:
        """Return the port of one broker for clients, with the first kind of login. Errors as `kill`."""
        self._node(broker)
        return self._ports[broker].clients[self.security[0]]

    def pid(self, broker: int = 1) -> int | None:
        """Return the process id of one broker, or None while it does not run. Errors as `kill`."""
        return self._node(broker).pid

    def log(self, broker: int = 1) -> str:
        """Read all that one broker has logged. Errors as `kill`."""
        return self._node(broker).log.read_text(encoding="utf-8", errors="replace")

    def detach_services(self) -> dict[str, int]:
        """Move the KDC and the identity provider to their own processes, which can outlive this process.

        Until `detach` is called, they still end with this process.

        Returns:
            The process ids by the kind of service.

        Raises:
            LocalKafkaError: The identity provider does not start in its own process.
        """
        return self._site.detach(self.mark)

    def _client(self, servers: str, security: Security, user: str) -> RunningKafka:
        """Return a client that logs in as a user; its own operations use plaintext where librdkafka cannot log in.

        Key files that the login needs are created if they do not exist.
        """
        kind = KINDS[security]
        # Logins that librdkafka does not support are replaced by plaintext for the clients of this class only.
        login = kind.client_properties(self._site, user)
        own = {SERVERS: self._servers("plaintext")} if login is None else login
        return RunningKafka(servers, own, kind.java_properties(self._site, user))

    def _servers(self, security: Security) -> str:
        """Return the bootstrap servers with the ports of a kind of login, which this Kafka must have."""
        _ = self.data_dir
        return ",".join(f"{HOST}:{ports.clients[security]}" for ports in self._ports.values())

    def _node(self, broker: int) -> Broker:
        """Return a broker by its number."""
        if broker not in self._nodes:
            raise LocalKafkaError(f"There is no broker {broker}; the brokers are {listing(self._nodes)}")
        return self._nodes[broker]

    def _start_brokers(self, java: Path, kafka: KafkaJars) -> None:
        """Choose ports, start all brokers and wait until they serve.

        If another process has taken a free port meanwhile, try again with others, twice at most.
        """
        for attempt in range(3):
            self._ports = self._choose_ports()
            self._nodes = {node_id: self._configure(node_id, java, kafka) for node_id in self._ports}
            try:
                for node in self._nodes.values():
                    node.start()
                self._wait(list(self._nodes))
            except BrokerDiedError as error:
                # Another process took a port after it was chosen. Ports that the user chose are not replaced.
                if _TAKEN not in error.log_tail or self._port is not None or attempt == 2:
                    raise
                for node in self._nodes.values():
                    node.kill()
            else:
                return

    def _choose_ports(self) -> dict[int, Ports]:
        """Choose the ports of all brokers: for the first kind of login from the declared port on, else free ones."""
        taken: set[int] = set()

        def choose(wanted: int | None = None) -> int:
            if wanted is not None and not is_free(wanted):
                raise LocalKafkaError(
                    f"port={self._port}: port {wanted} on {HOST} is in use; name another, or leave port= out to take a "
                    "free one"
                )
            port = wanted if wanted is not None else free_port(taken)
            taken.add(port)
            return port

        wanted = [None if self._port is None else self._port + at for at in range(self.brokers)]
        first = {node_id: choose(port) for node_id, port in enumerate(wanted, start=1)}
        return {
            node_id: Ports(
                clients={
                    kind: port if kind == self.security[0] else choose() for kind in _add_plaintext(self.security)
                },
                controller=choose(),
            )
            for node_id, port in first.items()
        }

    def _configure(self, node_id: int, java: Path, kafka: KafkaJars) -> Broker:
        """Write the configuration of a broker, which its owner alone can read; return the broker, not yet started."""
        config = self.data_dir / f"server-{node_id}.properties"
        values = broker_properties(
            node_id,
            ports=self._ports,
            site=self._site,
            log_dir=log_dir(self.data_dir, node_id),
            overrides=self._properties,
            acls=self._acls,
        )
        config.touch(mode=0o600)  # it may hold passwords
        config.write_text(properties_text(values), encoding="utf-8")
        return Broker(
            name=f"Broker {node_id}",
            node_id=node_id,
            java=java,
            kafka=kafka,
            config=config,
            log=self.data_dir / f"broker-{node_id}.log",
            heap=self._heap,
            mark=self.mark,
            system=self.system_properties,
        )

    def _wait(self, node_ids: Sequence[int]) -> None:
        """Wait until brokers serve: each answers with as many brokers and the leaders, see `_serves`."""
        waiting = list(node_ids)

        def find_waiting(_: float) -> list[int]:
            for node in self._nodes.values():
                node.check()
            while waiting and self._is_ready(waiting[0], len(node_ids)):
                waiting.pop(0)
            return waiting

        if retry(find_waiting, lambda left: not left, Deadline(self._timeout), pause=0.03):
            node = self._nodes[waiting[0]]
            raise LocalKafkaError(
                f"{node.name} is not ready after {self._timeout:g} s; its log is {node.log}\n{node.tail()}"
            )

    def _is_ready(self, node_id: int, brokers: int) -> bool:
        """Return whether a broker's plaintext port is open and it serves; see `_serves`."""
        return answers(self._ports[node_id].clients["plaintext"]) and self._serves(node_id, brokers)

    def _serves(self, node_id: int, others: int) -> bool:
        """Ask a broker whether it knows at least ``others`` brokers, itself among them; False without an answer in 2 s.

        While all brokers run, all partitions must have leaders, too.
        """
        port = self._ports[node_id].clients["plaintext"]
        try:
            metadata = AdminClient({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0}).list_topics(timeout=2)
        except KafkaException:
            return False
        led = all(part.leader >= 0 for topic in metadata.topics.values() for part in topic.partitions.values())
        return node_id in metadata.brokers and len(metadata.brokers) >= others and (led or not self.running)

    def _add_users(self) -> None:
        """Store the users of kinds that keep them in the cluster (SCRAM), and wait until they can log in."""
        stored: list[Security] = [kind for kind in self.security if KINDS[kind].stored]
        if stored:
            store_users(self.through("plaintext"), self._users)
        for kind in stored:
            for user in self._users:
                self._wait_for_login(self.through(kind, user).client_properties, user)

    def _wait_for_login(self, settings: Mapping[str, str], user: str) -> None:
        """Wait until the brokers accept the login of a user."""

        def can_log_in(_: float) -> bool:
            try:
                AdminClient({**settings, "log_level": 0}).list_topics(timeout=2)
            except KafkaException:
                return False
            return True

        if not retry(can_log_in, bool, Deadline(self._timeout), pause=0.02):
            raise LocalKafkaError(
                f"User {user!r} still cannot log in {self._timeout:g} s after the start; raise timeout= if this "
                "machine is slow"
            )


def _check_kinds(security: Security | Sequence[Security]) -> tuple[Security, ...]:
    """Return the kinds of login as a tuple; ``plaintext`` if there are none."""
    kinds: tuple[Security, ...] = (security,) if isinstance(security, str) else tuple(security)
    for kind in kinds:
        if kind not in KINDS:
            raise LocalKafkaError(f"security={kind!r} is not known{nearest(kind, KINDS)}; use one of {listing(KINDS)}")
    return kinds or ("plaintext",)


def _add_plaintext(security: Sequence[Security]) -> tuple[Security, ...]:
    """Return the kinds of login, with plaintext added if it is not among them: brokers talk to each other in it."""
    return security if "plaintext" in security else (*security, "plaintext")  # type: ignore[return-value]
