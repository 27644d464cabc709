-- Copy a declared topic, and all topics whose names begin with web-, into tables of Delta Lake. Those of web-… get columns as
-- messages show them.
--   kdsl run examples/sql/copy_to_delta.sql --bootstrap-servers localhost:9092 --checkpoint /tmp/copies --once

CREATE CATALOG shop WITH ('type' = 'kafka', 'format' = 'json', 'value.fields-prefix' = '');
CREATE CATALOG lake WITH ('type' = 'delta', 'path' = '/tmp/lake');
CREATE TABLE orders (
  id BIGINT,
  note STRING,
  part INT NOT NULL METADATA FROM 'partition',
  place BIGINT NOT NULL METADATA FROM 'offset',
  PRIMARY KEY (part, place) NOT ENFORCED
) WITH (
  'connector' = 'kafka',
  'topic' = 'orders',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json'
);

BEGIN STATEMENT SET;
CREATE TABLE IF NOT EXISTS lake.shop.orders
AS TABLE orders
ADD COLUMN loud AS UPPER(note) AFTER note;

CREATE DATABASE IF NOT EXISTS lake.web
AS DATABASE shop.kafka INCLUDING TABLE 'web-.*' EXCLUDING TABLE '.*-tmp';
END;
