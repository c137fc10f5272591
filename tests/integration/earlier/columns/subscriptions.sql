PRAGMA application_id = 1953854062;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE deleted (
        id TEXT PRIMARY KEY,
        born INTEGER NOT NULL,
        died INTEGER NOT NULL
    ) WITHOUT ROWID;
INSERT INTO "deleted" VALUES('gone',3,4);
CREATE TABLE leaf (
        key TEXT NOT NULL,
        pattern TEXT NOT NULL,
        partial INTEGER NOT NULL,
        id TEXT NOT NULL,
        PRIMARY KEY (key, pattern, partial, id)
    ) WITHOUT ROWID;
INSERT INTO "leaf" VALUES('subject','out-*.a.*',0,'one');
INSERT INTO "leaf" VALUES('subject','out-*.a.*',0,'two');
INSERT INTO "leaf" VALUES('subject','out-*.b.*',0,'two');
CREATE TABLE metadata (
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        id TEXT NOT NULL,
        PRIMARY KEY (name, value, id)
    ) WITHOUT ROWID;
INSERT INTO "metadata" VALUES('owner','Änne','one');
CREATE TABLE state (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        revision INTEGER NOT NULL,
        horizon INTEGER NOT NULL
    );
INSERT INTO "state" VALUES(1,4,0);
CREATE TABLE subscription (
        row INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        revision INTEGER NOT NULL,
        record TEXT NOT NULL
    );
INSERT INTO "subscription" VALUES(1,'one',1,'[["out-columns-subscribed.one"],{"kiwiCondition":{"key":"subject","pattern":"out-*.a.*","id":"6382b2e1-4403-436d-9350-d0d81d883520"}},{"owner":"Änne"}]');
INSERT INTO "subscription" VALUES(2,'two',2,'[["out-columns-subscribed.two","out-columns-subscribed.three"],{"groupCondition":{"logic":"And","group":[{"kiwiCondition":{"key":"subject","pattern":"out-*.b.*","id":"97c2e594-8fbf-4d28-ae89-f1c89f51de9d"}},{"kiwiCondition":{"not":true,"key":"subject","pattern":"out-*.a.*","id":"8730bba2-cfa8-43e9-86f8-033e38a813fc"}}],"id":"78debca4-945d-48e2-a47a-6e68d3230c50"}},{}]');
CREATE INDEX deleted_died ON deleted (died);
COMMIT;
