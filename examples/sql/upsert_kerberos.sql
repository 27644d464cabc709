-- Orders by their key from a cluster with Kerberos, which needs the transport of Spark's own connector.
--   kdsl run examples/sql/upsert_kerberos.sql

CREATE TABLE orders (
  order_id STRING,
  order_channel STRING,
  order_time STRING,
  pay_amount DOUBLE,
  real_pay DOUBLE,
  pay_time STRING,
  user_id STRING,
  user_name STRING,
  area_id STRING,
  PRIMARY KEY (order_id) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'orders-by-key',
  'properties.bootstrap.servers' = 'broker:9092',
  'key.format' = 'csv',
  'value.format' = 'json',
  'properties.security.protocol' = 'SASL_PLAINTEXT',
  'properties.sasl.mechanism' = 'GSSAPI',
  'properties.sasl.kerberos.service.name' = 'kafka',
  'properties.connector.auth.open' = 'true',
  'properties.connector.kerberos.principal' = 'user@EXAMPLE.COM',
  'properties.connector.kerberos.krb5' = '/etc/krb5.conf',
  'properties.connector.kerberos.keytab' = '/etc/security/user.keytab'
);

CREATE TABLE shown WITH ('connector' = 'print') LIKE orders (EXCLUDING OPTIONS);

INSERT INTO shown SELECT * FROM orders;
