-- Made-up tables in the shapes that PGSync's examples have; one line, one statement group.
-- a guest with one stay, in a cabin of a village of a region; its keeper and its verdict (as airbnb)
CREATE TABLE guest (id int PRIMARY KEY, email text UNIQUE NOT NULL);
CREATE TABLE keeper (id int PRIMARY KEY, email text UNIQUE NOT NULL);
CREATE TABLE region (id int PRIMARY KEY, name text NOT NULL, code text NOT NULL);
CREATE TABLE village (id int PRIMARY KEY, name text NOT NULL, region_id int REFERENCES region);
CREATE TABLE cabin (id int PRIMARY KEY, keeper_id int REFERENCES keeper, address text, village_id int REFERENCES village);
CREATE TABLE stay (id int PRIMARY KEY, guest_id int REFERENCES guest, cabin_id int REFERENCES cabin, arrives timestamp, leaves timestamp, nightly float8, nights int NOT NULL DEFAULT 1);
CREATE TABLE verdict (id int PRIMARY KEY, stay_id int UNIQUE REFERENCES stay, stars smallint, remark text);
INSERT INTO guest VALUES (1, 'ada@x.example'), (2, 'bo@x.example'), (3, 'cy@x.example');
INSERT INTO keeper VALUES (1, 'kim@x.example');
INSERT INTO region VALUES (1, 'Highlands', 'HI');
INSERT INTO village VALUES (1, 'Fern', 1), (2, 'Nowhere', NULL);
INSERT INTO cabin VALUES (1, 1, '2 Lane', 1), (2, NULL, '3 Lane', 2);
INSERT INTO stay VALUES (1, 1, 1, '2025-05-01 12:00', '2025-05-03 10:30:15.25', 80.5, 2), (2, 2, 2, NULL, NULL, NULL, 1);
INSERT INTO verdict VALUES (1, 1, 5, 'warm');
-- orders of passages, their contacts as json, the boarding through legs of two columns (as airline)
CREATE SCHEMA ferry;
CREATE TABLE ferry.orders (ref char(4) PRIMARY KEY, placed timestamptz NOT NULL, total numeric(10, 2));
CREATE TABLE ferry.passages (no text PRIMARY KEY, ref char(4) NOT NULL REFERENCES ferry.orders, contact jsonb);
CREATE TABLE ferry.legs (no text REFERENCES ferry.passages, crossing int, fare numeric, PRIMARY KEY (no, crossing));
CREATE TABLE ferry.boardings (no text, crossing int, seat text, PRIMARY KEY (no, crossing), FOREIGN KEY (no, crossing) REFERENCES ferry.legs);
INSERT INTO ferry.orders VALUES ('A001', '2025-01-01 10:00+00', 12.50), ('B002', '2025-01-02 10:00+00', NULL);
INSERT INTO ferry.passages VALUES ('p1', 'A001', '{"email": "a@x.example", "phone": "1"}'), ('p2', 'A001', '{"email": null}'), ('p3', 'A001', NULL);
INSERT INTO ferry.legs VALUES ('p1', 1, 3), ('p1', 2, 4), ('p2', 1, 3);
INSERT INTO ferry.boardings VALUES ('p1', 1, '4A'), ('p1', 2, '5B');
-- five levels, the second one only leads on (as ancestry)
CREATE TABLE root (id int PRIMARY KEY, name text);
CREATE TABLE trunk (id int PRIMARY KEY, name text, root_id int REFERENCES root);
CREATE TABLE branch (id int PRIMARY KEY, name text, trunk_id int REFERENCES trunk);
CREATE TABLE twig (id int PRIMARY KEY, name text, branch_id int REFERENCES branch);
CREATE TABLE leaf (id int PRIMARY KEY, name text, twig_id int REFERENCES twig);
INSERT INTO root VALUES (1, 'oak'), (2, 'ash'), (3, NULL);
INSERT INTO trunk VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 2);
INSERT INTO branch VALUES (1, 'x', 1), (2, 'y', 1), (3, 'z', 2), (4, 'lost', NULL);
INSERT INTO twig VALUES (1, 'm', 1), (2, 'n', 3);
INSERT INTO leaf VALUES (1, 'l1', 1), (2, 'l2', 1);
-- records with songs, labels, players, tongues, moods: joined by a code that is not the key (as book)
CREATE TABLE continent (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE country (id int PRIMARY KEY, name text NOT NULL, continent_id int REFERENCES continent);
CREATE TABLE city (id int PRIMARY KEY, name text NOT NULL, country_id int REFERENCES country);
CREATE TABLE label (id int PRIMARY KEY, name text NOT NULL, is_active boolean);
CREATE TABLE player (id int PRIMARY KEY, name text NOT NULL, born timestamp, city_id int REFERENCES city);
CREATE TABLE mood (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE tongue (id int PRIMARY KEY, code text NOT NULL);
CREATE TABLE album (id int PRIMARY KEY, ean text UNIQUE NOT NULL, title text NOT NULL, notes text, tags jsonb, doc jsonb, label_id int REFERENCES label, issued timestamp, spot point, outline polygon);
CREATE TABLE score (id int PRIMARY KEY, album_ean text UNIQUE REFERENCES album (ean), value float8);
CREATE TABLE album_player (id int PRIMARY KEY, album_ean text REFERENCES album (ean), player_id int REFERENCES player);
CREATE TABLE album_mood (id int PRIMARY KEY, album_ean text REFERENCES album (ean), mood_id int REFERENCES mood);
CREATE TABLE album_tongue (id int PRIMARY KEY, album_ean text REFERENCES album (ean), tongue_id int REFERENCES tongue);
INSERT INTO continent VALUES (1, 'Europe');
INSERT INTO country VALUES (1, 'Norway', 1), (2, 'Atlantis', NULL);
INSERT INTO city VALUES (1, 'Bergen', 1), (2, 'Poseidonis', 2);
INSERT INTO label VALUES (1, 'Blue', true), (2, 'Red', false), (3, 'Grey', NULL);
INSERT INTO player VALUES (1, 'Ann', '1970-02-03', 1), (2, 'Ben', NULL, 2), (3, 'Cal', NULL, NULL);
INSERT INTO mood VALUES (1, 'calm'), (2, 'bright');
INSERT INTO tongue VALUES (1, 'nb-NO'), (2, 'en-GB');
INSERT INTO album VALUES
  (1, '40001', 'First', 'one', '["a", "b"]', '{"firstname": "F", "coordinates": [1, 2], "a": {"b": {"c": [0, 1, 2, 3, {"e": 5}]}}, "x": [{"y": 0, "z": 5}, {"y": 1, "z": 4}]}', 1, '2020-01-02 03:04:05', '(1,2)', '((0,0),(0,1),(1,1))'),
  (2, '40002', 'Second', NULL, NULL, '{"firstname": 7}', 2, NULL, NULL, NULL),
  (3, '5', 'Third', '', '"t"', NULL, 3, NULL, NULL, NULL),
  (4, '6', 'Fourth', NULL, NULL, '[]', NULL, NULL, NULL, NULL);
INSERT INTO score VALUES (1, '40001', 4.5), (2, '5', NULL);
INSERT INTO album_player VALUES (1, '40001', 1), (2, '40001', 2), (3, '40002', 1), (4, '5', 3);
INSERT INTO album_mood VALUES (1, '40001', 1), (2, '40001', 2);
INSERT INTO album_tongue VALUES (1, '40001', 1), (2, '40001', 2), (3, '40002', 2);
-- views of single tables (as book_view)
CREATE VIEW album_view AS SELECT id, ean, title, notes, label_id FROM album;
CREATE VIEW label_view AS SELECT * FROM label;
-- mixed case (as demo and jira)
CREATE TABLE plans (id int PRIMARY KEY, title text, slug text, "teamId" int, "goalReached" numeric, "isOpen" boolean, "startDate" date, "metaData" jsonb);
CREATE TABLE "planFiles" (id int PRIMARY KEY, "sourceUrl" text, "planId" int UNIQUE REFERENCES plans);
INSERT INTO plans VALUES (1, 'Well', 'well', 4, 10.25, true, '2024-02-29', '{"k": [1]}'), (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO "planFiles" VALUES (1, 'http://x.example/1', 1);
CREATE TABLE "XY_77_PARCEL" ("ID" bigint PRIMARY KEY, "SENT_AT" bigint, "SUBJECT" varchar(50), "RETRIES" int);
INSERT INTO "XY_77_PARCEL" VALUES (1, 1700000000000, 'hello', 0), (2, NULL, NULL, NULL);
-- a tree in one table (as node)
CREATE TABLE box (id int PRIMARY KEY, name text, box_id int REFERENCES box);
INSERT INTO box VALUES (1, 'large', NULL), (2, 'middle', 1), (3, 'small', 2), (4, 'empty', NULL);
-- a table elsewhere, with all its columns (as poc)
CREATE SCHEMA profiles;
CREATE TABLE profiles.member (id uuid PRIMARY KEY, nick text, joined date, points int[], word varchar(9));
INSERT INTO profiles.member VALUES ('00000000-0000-4000-8000-000000000001', 'n', '2020-05-06', '{1,2}', 'w'), ('00000000-0000-4000-8000-000000000002', NULL, NULL, NULL, NULL);
-- keys of two columns, twice the same table through others (as quiz)
CREATE TABLE riddle (no int, lang text, text text NOT NULL, PRIMARY KEY (no, lang));
CREATE TABLE reply (no int, lang text, text text NOT NULL, PRIMARY KEY (no, lang));
CREATE TABLE offered_reply (riddle_no int, riddle_lang text, reply_no int, reply_lang text, PRIMARY KEY (riddle_no, riddle_lang, reply_no, reply_lang), FOREIGN KEY (riddle_no, riddle_lang) REFERENCES riddle, FOREIGN KEY (reply_no, reply_lang) REFERENCES reply);
CREATE TABLE right_reply (LIKE offered_reply INCLUDING ALL, FOREIGN KEY (riddle_no, riddle_lang) REFERENCES riddle, FOREIGN KEY (reply_no, reply_lang) REFERENCES reply);
INSERT INTO riddle VALUES (1, 'en', 'What has keys?'), (1, 'de', 'Was hat Tasten?');
INSERT INTO reply VALUES (1, 'en', 'a piano'), (2, 'en', 'a door'), (1, 'de', 'ein Klavier');
INSERT INTO offered_reply VALUES (1, 'en', 1, 'en'), (1, 'en', 2, 'en'), (1, 'de', 1, 'de');
INSERT INTO right_reply VALUES (1, 'en', 1, 'en');
-- one value of another table (as record)
CREATE TABLE crate (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE bottle (id int PRIMARY KEY, vintage smallint, crate_id int REFERENCES crate);
INSERT INTO crate VALUES (1, 'oak');
INSERT INTO bottle VALUES (1, 1999, 1), (2, NULL, NULL);
-- films, copies of them, loans, clerks and payments: lists in both directions, deep (as rental)
CREATE TYPE grade AS ENUM ('all', 'adult');
CREATE TABLE nation (id int PRIMARY KEY, nation text NOT NULL);
CREATE TABLE town (id int PRIMARY KEY, town text NOT NULL, nation_id int NOT NULL REFERENCES nation);
CREATE TABLE place (id int PRIMARY KEY, street text NOT NULL, phone text, town_id int NOT NULL REFERENCES town);
CREATE TABLE branch_office (id int PRIMARY KEY, place_id int NOT NULL REFERENCES place);
CREATE TABLE clerk (id int PRIMARY KEY, first_name text, active boolean, office_id int NOT NULL REFERENCES branch_office);
CREATE TABLE client (id int PRIMARY KEY, first_name text, active int, place_id int NOT NULL REFERENCES place);
CREATE TABLE dialect (id int PRIMARY KEY, name char(20) NOT NULL);
CREATE TABLE film (id int PRIMARY KEY, title varchar(255) NOT NULL, year int, dialect_id int NOT NULL REFERENCES dialect, rate numeric(4, 2), grade grade, extras text[], words tsvector);
CREATE TABLE genre (id int PRIMARY KEY, name varchar(25) NOT NULL);
CREATE TABLE film_genre (film_id int REFERENCES film, genre_id int REFERENCES genre, PRIMARY KEY (film_id, genre_id));
CREATE TABLE star (id int PRIMARY KEY, first_name text, last_name text);
CREATE TABLE film_star (film_id int REFERENCES film, star_id int REFERENCES star, PRIMARY KEY (film_id, star_id));
CREATE TABLE copy (id int PRIMARY KEY, film_id int NOT NULL REFERENCES film, shelf int NOT NULL);
CREATE TABLE loan (id int PRIMARY KEY, copy_id int NOT NULL REFERENCES copy, clerk_id int NOT NULL REFERENCES clerk);
CREATE TABLE payment (id int PRIMARY KEY, client_id int NOT NULL REFERENCES client, loan_id int NOT NULL REFERENCES loan, amount numeric(5, 2) NOT NULL, paid timestamp NOT NULL);
INSERT INTO nation VALUES (1, 'Chile');
INSERT INTO town VALUES (1, 'Arica', 1);
INSERT INTO place VALUES (1, '1 Sea St', '555', 1), (2, '2 Hill St', NULL, 1);
INSERT INTO branch_office VALUES (1, 2);
INSERT INTO clerk VALUES (1, 'Mo', true, 1);
INSERT INTO client VALUES (1, 'Zoe', 1, 1);
INSERT INTO dialect VALUES (1, 'plain');
INSERT INTO film VALUES (1, 'Dawn', 2001, 1, 2.99, 'all', '{cuts,talk}', to_tsvector('simple', 'dawn breaks')), (2, 'Dusk', NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO genre VALUES (1, 'drama'), (2, 'noir');
INSERT INTO film_genre VALUES (1, 1), (1, 2);
INSERT INTO star VALUES (1, 'Li', 'Wu'), (2, 'Jo', NULL);
INSERT INTO film_star VALUES (1, 1), (1, 2);
INSERT INTO copy VALUES (1, 1, 7), (2, 1, 8);
INSERT INTO loan VALUES (1, 1, 1), (2, 1, 1);
INSERT INTO payment VALUES (1, 1, 1, 3.50, '2024-06-01 08:00');
-- a junction between rows of one table, and three plain levels (as sandbox)
CREATE TABLE area (id text PRIMARY KEY, code text, level text, shape json);
CREATE TABLE area_above (id int PRIMARY KEY, area_id text REFERENCES area, above_id text REFERENCES area);
INSERT INTO area VALUES ('a', '1', 'town', '{"t": 1}'), ('b', '2', 'state', NULL), ('c', '3', NULL, NULL);
INSERT INTO area_above VALUES (1, 'a', 'b'), (2, 'a', 'c'), (3, 'b', 'c');
CREATE TABLE tray (id int PRIMARY KEY, name text);
CREATE TABLE cup (id int PRIMARY KEY, name text, tray_id int UNIQUE REFERENCES tray);
CREATE TABLE spoon (id int PRIMARY KEY, name text, cup_id int UNIQUE REFERENCES cup);
INSERT INTO tray VALUES (1, 't'), (2, 'u');
INSERT INTO cup VALUES (1, 'c', 1);
INSERT INTO spoon VALUES (1, 's', 1);
-- tables of several schemas, with and without one between (as schemas and through_schemas)
CREATE SCHEMA above;
CREATE SCHEMA below;
CREATE SCHEMA links;
CREATE TABLE above.hive (id int PRIMARY KEY, name text);
CREATE TABLE below.bee (id int PRIMARY KEY, name text, hive_id int REFERENCES above.hive);
CREATE TABLE links.visits (id int PRIMARY KEY, hive_id int REFERENCES above.hive, bee_id int REFERENCES below.bee);
INSERT INTO above.hive VALUES (1, 'north'), (2, 'south');
INSERT INTO below.bee VALUES (1, 'b1', 1), (2, 'b2', 1), (3, 'b3', 2);
INSERT INTO links.visits VALUES (1, 2, 1), (2, 2, 3);
-- columns that no foreign key joins (as shop and starcraft)
CREATE TABLE mall (id int PRIMARY KEY, name text, city text);
CREATE TABLE floor (id int PRIMARY KEY, mall_id int, name text, level int);
CREATE TABLE stand (id int PRIMARY KEY, floor_id int, name text, price numeric);
INSERT INTO mall VALUES (1, 'M', 'Oslo'), (2, 'N', NULL);
INSERT INTO floor VALUES (1, 1, 'ground', 0), (2, 1, 'top', 3);
INSERT INTO stand VALUES (1, 1, 'fruit', 1.25), (2, 1, 'tea', NULL);
CREATE TABLE clan (id int PRIMARY KEY, name text);
CREATE TABLE unit (id int PRIMARY KEY, name text, details jsonb, clan_id int);
CREATE TABLE building (id int PRIMARY KEY, name text, details jsonb, clan_id int);
INSERT INTO clan VALUES (1, 'Moss'), (2, 'Stone');
INSERT INTO unit VALUES (1, 'scout', '{"hp": 5}', 1), (2, 'giant', NULL, 2);
INSERT INTO building VALUES (1, 'gate', '{"hp": 50}', 1);
-- people, their tags and posts with comments, all through others (as social and through)
CREATE TABLE person (id int PRIMARY KEY, name text NOT NULL, age int, gender text);
CREATE TABLE post (id int PRIMARY KEY, title text NOT NULL, slug text);
CREATE TABLE remark (id int PRIMARY KEY, title text, content text);
CREATE TABLE tag (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE person_post (id int PRIMARY KEY, person_id int REFERENCES person, post_id int REFERENCES post);
CREATE TABLE post_remark (id int PRIMARY KEY, post_id int REFERENCES post, remark_id int REFERENCES remark);
CREATE TABLE person_tag (id int PRIMARY KEY, person_id int REFERENCES person, tag_id int REFERENCES tag);
CREATE TABLE "group" (id int PRIMARY KEY, group_name text NOT NULL);
CREATE TABLE person_group (id int PRIMARY KEY, person_id int NOT NULL REFERENCES person, group_id int NOT NULL REFERENCES "group");
INSERT INTO person VALUES (1, 'Pat', 30, 'f'), (2, 'Quin', NULL, NULL);
INSERT INTO post VALUES (1, 'Hello', 'hello'), (2, 'Again', NULL);
INSERT INTO remark VALUES (1, 'r1', 'nice'), (2, NULL, 'hm');
INSERT INTO tag VALUES (1, 'red'), (2, 'blue');
INSERT INTO person_post VALUES (1, 1, 1), (2, 1, 2), (3, 2, 2);
INSERT INTO post_remark VALUES (1, 1, 1), (2, 1, 2);
INSERT INTO person_tag VALUES (1, 1, 1), (2, 1, 2);
INSERT INTO "group" VALUES (1, 'climbers'), (2, 'cooks');
INSERT INTO person_group VALUES (1, 1, 1), (2, 1, 2), (3, 2, 2);
