-- Orders by their key, printed as a changelog: inserts, updates and deletes.
--   kdsl run examples/sql/upsert_print.sql --bootstrap-servers localhost:9092

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
  'key.format' = 'csv',
  'value.format' = 'json'
);

CREATE TABLE shown WITH ('connector' = 'print') LIKE orders (EXCLUDING OPTIONS);

INSERT INTO shown SELECT * FROM orders;
