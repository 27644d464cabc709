-- Write incoming orders as upserts: the topic keeps the current row of each order.
--   kdsl run examples/sql/upsert_orders.sql --bootstrap-servers localhost:9092

CREATE TABLE orders (
  order_id STRING,
  order_channel STRING,
  order_time STRING,
  pay_amount DOUBLE,
  real_pay DOUBLE,
  pay_time STRING,
  user_id STRING,
  user_name STRING,
  area_id STRING
) WITH (
  'connector' = 'kafka',
  'topic' = 'orders',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json'
);

CREATE TABLE orders_by_key (
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

INSERT INTO orders_by_key SELECT * FROM orders;
