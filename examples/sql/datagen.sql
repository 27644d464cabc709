-- Write generated orders to Kafka, and count those of each channel from there.
--   kdsl run examples/sql/datagen.sql --bootstrap-servers localhost:9092

CREATE TABLE made_up (
  order_id INT,
  channel INT,
  pay_amount DECIMAL(6, 2)
) WITH (
  'connector' = 'datagen',
  'number-of-rows' = '100',
  'fields.order_id.kind' = 'sequence',
  'fields.order_id.start' = '1',
  'fields.order_id.end' = '1000',
  'fields.channel.min' = '1',
  'fields.channel.max' = '3',
  'fields.pay_amount.min' = '1',
  'fields.pay_amount.max' = '500'
);

CREATE TABLE orders (
  order_id INT,
  channel STRING,
  pay_amount DECIMAL(6, 2)
) WITH (
  'connector' = 'kafka',
  'topic' = 'made-up-orders',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json'
);

INSERT INTO orders
SELECT order_id, CASE channel WHEN 1 THEN 'web' WHEN 2 THEN 'app' ELSE 'shop' END, pay_amount FROM made_up;

SET 'execution.runtime-mode' = 'batch';
SELECT channel, COUNT(*) AS orders, SUM(pay_amount) AS total FROM orders GROUP BY channel;
