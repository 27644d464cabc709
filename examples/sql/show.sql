-- Print orders as they arrive.
--   kdsl run examples/sql/show.sql --bootstrap-servers localhost:9092

CREATE TABLE orders (
  order_id STRING,
  order_channel STRING,
  order_time TIMESTAMP(3),
  pay_amount DOUBLE,
  real_pay DOUBLE,
  pay_time STRING,
  user_id STRING,
  user_name STRING,
  area_id STRING,
  day_of_order AS CAST(order_time AS DATE)
) WITH (
  'connector' = 'kafka',
  'topic' = 'orders',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json'
);

CREATE TABLE shown (day_of_order DATE, order_id STRING, discount DOUBLE) WITH (
  'connector' = 'print',
  'print-identifier' = 'order'
);

INSERT INTO shown SELECT day_of_order, order_id, pay_amount - real_pay FROM orders;
