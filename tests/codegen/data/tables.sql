CREATE TABLE user_behavior (
  `k-user` BIGINT COMMENT 'Who it was.',
  item_id INT NOT NULL,
  price DECIMAL(10, 2),
  tags MAP<STRING, ARRAY<ROW<`a-b` STRING 'A member.', n MULTISET<STRING>>>>,
  `date` DATE,
  total AS price * 2 COMMENT 'Twice the price.',
  ts TIMESTAMP(3) METADATA FROM 'timestamp',
  `offset` BIGINT METADATA VIRTUAL,
  headers MAP<STRING NOT NULL, BYTES> NOT NULL METADATA,
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) COMMENT 'What users do.' WITH (
  'connector' = 'kafka',
  'topic' = 'behavior;behavior-old',
  'properties.bootstrap.servers' = 'localhost:9092',
  'properties.group.id' = 'readers',
  'scan.startup.mode' = 'specific-offsets',
  'scan.startup.specific-offsets' = 'partition:0,offset:42;partition:1,offset:300',
  'key.format' = 'json',
  'key.json.ignore-parse-errors' = 'true',
  'key.fields' = 'k-user',
  'key.fields-prefix' = 'k-',
  'value.format' = 'csv',
  'value.csv.field-delimiter' = '|',
  'value.fields-include' = 'EXCEPT_KEY'
);

CREATE TABLE changes (
  id BIGINT NOT NULL,
  name STRING,
  origin STRING METADATA FROM 'value.source.table' VIRTUAL,
  PRIMARY KEY (id) NOT ENFORCED
) WITH ('connector' = 'kafka', 'topic' = 'changes', 'format' = 'debezium-json');
