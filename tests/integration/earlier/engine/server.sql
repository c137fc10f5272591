PRAGMA application_id = 0;
PRAGMA user_version = 0;
BEGIN TRANSACTION;
CREATE TABLE counts (
    route TEXT NOT NULL, minute INTEGER NOT NULL, counts TEXT NOT NULL, PRIMARY KEY (route, minute)) WITHOUT ROWID;
INSERT INTO "counts" VALUES('orders',4000000020,'{"read": 5, "filtered": 2, "lost_by_weight": 0, "unmatched": 0, "delivered": 3, "dead_lettered": 0, "discarded": 0, "messages": 3, "undeliverable": 0, "dropped_headers": 0}');
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, kind TEXT NOT NULL, route TEXT NOT NULL,
    detail TEXT NOT NULL);
INSERT INTO "events" VALUES(1,1.79537428796740412707e+09,'paused','orders','{"who": "ann"}');
CREATE TABLE pace (
    route TEXT NOT NULL, minute INTEGER NOT NULL, batches INTEGER NOT NULL, seconds REAL NOT NULL,
    lag_records INTEGER, lag_seconds REAL, PRIMARY KEY (route, minute)) WITHOUT ROWID;
INSERT INTO "pace" VALUES('orders',4000000020,4,1.5,100,2.5);
CREATE TABLE pauses (route TEXT PRIMARY KEY, who TEXT NOT NULL, at REAL NOT NULL);
INSERT INTO "pauses" VALUES('orders','ann',1.79537428795144295688e+09);
CREATE TABLE resets (route TEXT PRIMARY KEY, start TEXT, pending INTEGER NOT NULL);
INSERT INTO "resets" VALUES('bills','17',1);
CREATE TABLE revisions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, route TEXT NOT NULL, digest TEXT NOT NULL, text TEXT NOT NULL,
    file TEXT NOT NULL, at REAL NOT NULL, who TEXT NOT NULL);
INSERT INTO "revisions" VALUES(1,'orders','d1','name: orders','orders.yaml',1.79537428794355177884e+09,'file');
INSERT INTO "revisions" VALUES(2,'orders','d2','name: orders # again','orders.yaml',1.79537428794750070571e+09,'ann');
CREATE INDEX revisions_by_route ON revisions (route, id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('revisions',2);
INSERT INTO "sqlite_sequence" VALUES('events',1);
COMMIT;
