CREATE TABLE orders (id INT, customer STRING, amount INT, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ({orders});
CREATE TABLE shipments (order_id INT, place STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ({shipments});
CREATE TABLE bids (item STRING, price INT, bidder STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ({bids});
CREATE TABLE rates (currency STRING, rate INT, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ({rates});
CREATE TABLE payments (id INT, currency STRING, amount INT, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ({payments});
CREATE TABLE baskets (id INT, items ARRAY<STRING>, prices MAP<STRING, INT>) WITH ({baskets});
