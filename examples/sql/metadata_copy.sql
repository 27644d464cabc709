-- Copy a topic with all metadata of each record: metadata columns are read, physical columns are written.
--   kdsl run examples/sql/metadata_copy.sql --bootstrap-servers localhost:9092 --once

CREATE TABLE kafkaSource (
  `topic` STRING METADATA VIRTUAL,
  `partition` INT METADATA VIRTUAL,
  `headers` MAP<STRING, BYTES> METADATA VIRTUAL,
  `leader-epoch` INT METADATA VIRTUAL,
  `offset` BIGINT METADATA VIRTUAL,
  `timestamp-type` STRING METADATA VIRTUAL,
  `event_time` TIMESTAMP(3) METADATA FROM 'timestamp',
  `message` STRING
) WITH (
  'connector' = 'kafka',
  'topic' = 'SourceKafkaTopic',
  'properties.group.id' = 'GroupId',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'csv',
  'csv.field-delimiter' = '\u0001',
  'csv.quote-character' = ''''
);

CREATE TABLE kafkaSink (
  `topic` STRING,
  `partition` INT,
  `headers` MAP<STRING, BYTES>,
  `leader-epoch` INT,
  `offset` BIGINT,
  `timestampType` STRING,
  `event_time` TIMESTAMP(3),
  `message` STRING -- what the writer of the source wrote
) WITH (
  'connector' = 'kafka',
  'topic' = 'SinkKafkaTopic',
  'format' = 'json'
);

INSERT INTO kafkaSink SELECT * FROM kafkaSource;
