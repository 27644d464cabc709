-- Page views counted by region. Each count replaces the previous one, and its changes are read back.
--   kdsl run examples/sql/upsert_by_region.sql --bootstrap-servers localhost:9092 --once

CREATE TABLE page_views (
  user_id BIGINT,
  page_id STRING,
  viewtime TIMESTAMP(3),
  user_region STRING
) WITH (
  'connector' = 'kafka',
  'topic' = 'page-views',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json'
);

CREATE TABLE views_by_region (
  user_region STRING,
  views BIGINT,
  last_view TIMESTAMP(3),
  PRIMARY KEY (user_region) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'views-by-region',
  'key.format' = 'json',
  'value.format' = 'json'
);

CREATE TABLE shown (user_region STRING, views BIGINT, last_view TIMESTAMP(3)) WITH ('connector' = 'print');

INSERT INTO views_by_region SELECT user_region, COUNT(*), MAX(viewtime) FROM page_views GROUP BY user_region;

INSERT INTO shown SELECT * FROM views_by_region;
