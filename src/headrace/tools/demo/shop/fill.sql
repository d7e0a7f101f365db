-- Rows that depend on nothing but :users, :products and :seed. pick(i, salt, n) is a number from 0 to n - 1.

CREATE FUNCTION pg_temp.pick(i bigint, salt integer, n integer) RETURNS integer LANGUAGE sql IMMUTABLE
    AS 'SELECT ((hashint8extended($1, ($2 + 1000 * :seed)::bigint) & 2147483647) % $3)::integer';

CREATE FUNCTION pg_temp.uuid_of(i bigint, salt integer) RETURNS uuid LANGUAGE sql IMMUTABLE
    AS $$ SELECT md5(:seed || '/' || $2 || '/' || $1)::uuid $$;

CREATE FUNCTION pg_temp.word(k integer) RETURNS text LANGUAGE sql IMMUTABLE
    AS $$ SELECT ('{walnut,copper,linen,harbour,quiet,amber,folding,river,northern,velvet,paper,winter,café,größe,orchard,'
                  'lantern}'::text[])[1 + $1 % 16] $$;

CREATE FUNCTION pg_temp.titled(word text) RETURNS text LANGUAGE sql IMMUTABLE
    AS $$ SELECT upper(left($1, 1)) || substr($1, 2) $$;

INSERT INTO users (external_id, email, name, active, level, credit, score, birthday, attributes, created_at, deleted_at)
SELECT pg_temp.uuid_of(i, 1),
       CASE pg_temp.pick(i, 2, 4) WHEN 0 THEN ' User' ELSE 'user' END || i || '@example.org'
           || CASE pg_temp.pick(i, 3, 5) WHEN 0 THEN ' ' ELSE '' END,
       pg_temp.titled(pg_temp.word(pg_temp.pick(i, 4, 16))) || ' ' || pg_temp.titled(pg_temp.word(pg_temp.pick(i, 5, 16))),
       pg_temp.pick(i, 6, 10) > 0,
       1 + pg_temp.pick(i, 7, 9),
       CASE WHEN pg_temp.pick(i, 8, 4) > 0 THEN pg_temp.pick(i, 9, 1000000) / 100.0 END,
       CASE WHEN pg_temp.pick(i, 10, 5) > 0 THEN pg_temp.pick(i, 11, 1000000) / 7000.0::double precision END,
       CASE WHEN pg_temp.pick(i, 12, 3) > 0 THEN date '1950-01-01' + pg_temp.pick(i, 13, 20000) END,
       CASE WHEN pg_temp.pick(i, 14, 4) > 0
           THEN jsonb_build_object('plan', pg_temp.word(pg_temp.pick(i, 15, 4)),
                                   'logins', pg_temp.pick(i, 16, 500),
                                   'flags', jsonb_build_array(pg_temp.pick(i, 17, 2) = 0, NULL)) END,
       timestamptz '2025-01-01 00:00:00+00' + i * interval '7 minutes' + pg_temp.pick(i, 18, 1000000) * interval '1 microsecond',
       CASE WHEN pg_temp.pick(i, 19, 25) = 0 THEN timestamptz '2026-01-01 12:00:00+00' + i * interval '1 second' END
FROM generate_series(1, :users) AS i;

INSERT INTO profiles (user_id, bio, website, newsletter)
SELECT i,
       CASE WHEN pg_temp.pick(i, 21, 5) > 0 THEN 'Likes ' || pg_temp.word(pg_temp.pick(i, 22, 16)) || E',\n"' || pg_temp.word(pg_temp.pick(i, 23, 16)) || '" and \ more' END,
       CASE WHEN pg_temp.pick(i, 24, 2) > 0 THEN 'https://example.org/~' || i END,
       pg_temp.pick(i, 25, 2) = 0
FROM generate_series(1, :users) AS i WHERE pg_temp.pick(i, 20, 10) > 0;

INSERT INTO addresses (user_id, label, street, city, zip, country, latitude, longitude)
SELECT i, CASE WHEN n = 1 THEN 'home' WHEN n = 2 THEN 'work' END,
       pg_temp.titled(pg_temp.word(pg_temp.pick(i * 3 + n, 31, 16))) || ' Street ' || (1 + pg_temp.pick(i * 3 + n, 32, 200)),
       pg_temp.titled(pg_temp.word(pg_temp.pick(i * 3 + n, 33, 16))),
       CASE WHEN pg_temp.pick(i * 3 + n, 34, 5) > 0 THEN lpad(pg_temp.pick(i * 3 + n, 35, 100000)::text, 5, '0') END,
       ('{DE,FR,IT,GB,CZ}'::text[])[1 + pg_temp.pick(i * 3 + n, 36, 5)],
       CASE WHEN pg_temp.pick(i * 3 + n, 37, 3) > 0 THEN pg_temp.pick(i * 3 + n, 38, 180000) / 1000.0::double precision - 90 END,
       CASE WHEN pg_temp.pick(i * 3 + n, 39, 4) > 0 THEN pg_temp.pick(i * 3 + n, 40, 360000) / 1000.0::double precision - 180 END
FROM generate_series(1, :users) AS i, generate_series(1, 1 + pg_temp.pick(i, 30, 3)) AS n ORDER BY i, n;

INSERT INTO products (sku, name, description, price, weight, stock, released_on, labels, attributes, hidden)
SELECT 'SKU-' || lpad(i::text, 6, '0'),
       pg_temp.titled(pg_temp.word(pg_temp.pick(i, 51, 16)) || ' ' || pg_temp.word(pg_temp.pick(i, 52, 16))) || ' ' || i,
       CASE WHEN pg_temp.pick(i, 53, 6) > 0 THEN 'A ' || pg_temp.word(pg_temp.pick(i, 54, 16)) || ' thing' END,
       (1 + pg_temp.pick(i, 55, 50000)) / 100.0,
       CASE WHEN pg_temp.pick(i, 56, 4) > 0 THEN pg_temp.pick(i, 57, 100000) / 3000.0::double precision END,
       pg_temp.pick(i, 58, 500),
       CASE WHEN pg_temp.pick(i, 59, 5) > 0 THEN date '2020-01-01' + pg_temp.pick(i, 60, 2000) END,
       jsonb_build_object('en', pg_temp.word(pg_temp.pick(i, 61, 16)), 'de', pg_temp.word(pg_temp.pick(i, 62, 16))),
       CASE WHEN pg_temp.pick(i, 63, 3) > 0
           THEN jsonb_build_object('colour', pg_temp.word(pg_temp.pick(i, 64, 16)), 'size', jsonb_build_object('w', pg_temp.pick(i, 65, 90), 'h', pg_temp.pick(i, 66, 90))) END,
       pg_temp.pick(i, 67, 20) = 0
FROM generate_series(1, :products) AS i;

INSERT INTO orders (reference, user_id, shipping_address_id, status, total, channel, note, placed_at, paid_at, shipped_at)
SELECT pg_temp.uuid_of(i, 2), (i - 1) / 5 + 1, NULL,
       ('{new,paid,shipped,delivered,cancelled}'::text[])[1 + pg_temp.pick(i, 71, 5)],
       pg_temp.pick(i, 72, 100000) / 100.0,
       CASE pg_temp.pick(i, 73, 3) WHEN 0 THEN 'web' WHEN 1 THEN 'shop' END,
       CASE WHEN pg_temp.pick(i, 74, 4) = 0 THEN 'Leave at the ' || pg_temp.word(pg_temp.pick(i, 75, 16)) END,
       timestamptz '2025-06-01 00:00:00+00' + pg_temp.pick(i, 76, 100000) * interval '5 minutes',
       CASE WHEN pg_temp.pick(i, 71, 5) > 0 THEN timestamptz '2025-06-01 01:00:00+00' + pg_temp.pick(i, 76, 100000) * interval '5 minutes' END,
       CASE WHEN pg_temp.pick(i, 71, 5) IN (2, 3) THEN timestamptz '2025-06-02 00:00:00+00' + pg_temp.pick(i, 76, 100000) * interval '5 minutes' END
FROM generate_series(1, 5 * :users) AS i;

UPDATE orders SET shipping_address_id = first.id
FROM (SELECT user_id, min(id) AS id FROM addresses GROUP BY user_id) AS first
WHERE first.user_id = orders.user_id AND pg_temp.pick(orders.id, 77, 4) > 0;

INSERT INTO order_items (order_id, product_id, position, quantity, unit_price, gift)
SELECT i, CASE WHEN pg_temp.pick(i * 3 + n, 81, 40) > 0 THEN 1 + pg_temp.pick(i * 3 + n, 82, :products) END,
       n, 1 + pg_temp.pick(i * 3 + n, 83, 5), (1 + pg_temp.pick(i * 3 + n, 84, 50000)) / 100.0,
       pg_temp.pick(i * 3 + n, 85, 8) = 0
FROM generate_series(1, 5 * :users) AS i, generate_series(1, 3) AS n ORDER BY i, n;

INSERT INTO tags (name, rank)
SELECT pg_temp.word(i) || CASE WHEN i > 16 THEN '-' || i ELSE '' END, pg_temp.pick(i, 91, 10)
FROM generate_series(1, 40) AS i;

INSERT INTO product_tags (product_id, tag_id)
SELECT DISTINCT i, (1 + pg_temp.pick(i * 5 + n, 92, 40))::bigint
FROM generate_series(1, :products) AS i, generate_series(1, pg_temp.pick(i, 93, 5)) AS n ORDER BY 1, 2;

INSERT INTO reviews (product_id, user_id, rating, title, body, approved, created_at)
SELECT i, CASE WHEN pg_temp.pick(i * 20 + n, 101, 6) > 0 THEN 1 + pg_temp.pick(i * 20 + n, 102, :users) END,
       1 + pg_temp.pick(i * 20 + n, 103, 5),
       CASE WHEN pg_temp.pick(i * 20 + n, 104, 3) > 0 THEN pg_temp.titled(pg_temp.word(pg_temp.pick(i * 20 + n, 105, 16))) END,
       'It is ' || pg_temp.word(pg_temp.pick(i * 20 + n, 106, 16)) || '.',
       pg_temp.pick(i * 20 + n, 107, 5) > 0,
       timestamptz '2025-09-01 00:00:00+00' + pg_temp.pick(i * 20 + n, 108, 200) * interval '1 hour'
FROM generate_series(1, :products) AS i, generate_series(1, pg_temp.pick(i, 100, 9)) AS n ORDER BY i, n;
