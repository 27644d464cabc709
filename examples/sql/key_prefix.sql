-- Key and value of the message both have a column of the same name: a prefix distinguishes them.
--   kdsl run examples/sql/key_prefix.sql --bootstrap-servers localhost:9092 --once

CREATE TABLE user_behavior (
  `k_version` INT,
  `k_user_id` BIGINT,
  `k_item_id` BIGINT,
  `version` INT,
  `behavior` STRING
) WITH (
  'connector' = 'kafka',
  'topic' = 'user-behavior',
  'scan.startup.mode' = 'earliest-offset',
  'key.format' = 'json',
  'key.fields-prefix' = 'k_',
  'key.fields' = 'k_version;k_user_id;k_item_id',
  'value.format' = 'json',
  'value.fields-include' = 'EXCEPT_KEY'
);

CREATE TABLE shown (user_id BIGINT, item_id BIGINT, behavior STRING) WITH ('connector' = 'print');

INSERT INTO user_behavior VALUES
  (1, CAST(10 AS BIGINT), CAST(100 AS BIGINT), 7, 'view'),
  (1, CAST(11 AS BIGINT), CAST(101 AS BIGINT), 8, 'buy');

INSERT INTO shown SELECT k_user_id, k_item_id, UPPER(behavior) FROM user_behavior;
