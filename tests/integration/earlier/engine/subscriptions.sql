PRAGMA application_id = 1953854062;
PRAGMA user_version = 2;
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
CREATE TABLE moment (
        revision INTEGER PRIMARY KEY,
        at INTEGER NOT NULL
    );
INSERT INTO "moment" VALUES(0,1795374257232990);
INSERT INTO "moment" VALUES(1,1795374257235700);
INSERT INTO "moment" VALUES(2,1795374257237305);
INSERT INTO "moment" VALUES(3,1795374257238469);
INSERT INTO "moment" VALUES(4,1795374257239504);
CREATE TABLE past (
        id TEXT NOT NULL,
        died INTEGER NOT NULL,
        born INTEGER NOT NULL,
        record TEXT NOT NULL,
        PRIMARY KEY (id, died)
    ) WITHOUT ROWID;
INSERT INTO "past" VALUES('gone',4,3,'[["out-engine-subscribed.gone"],{"kiwiCondition":{"key":"subject","pattern":"out-*.b.*","id":"2c0bc558-d50f-4676-8aed-3624eebc2bb4"}},{}]');
CREATE TABLE state (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        revision INTEGER NOT NULL,
        horizon INTEGER NOT NULL
    , remembered INTEGER NOT NULL DEFAULT 0);
INSERT INTO "state" VALUES(1,4,0,0);
CREATE TABLE subscription (
        row INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        revision INTEGER NOT NULL,
        record TEXT NOT NULL
    );
INSERT INTO "subscription" VALUES(1,'one',1,'[["out-engine-subscribed.one"],{"kiwiCondition":{"key":"subject","pattern":"out-*.a.*","id":"687af1fa-5ce4-4648-a238-78ae410ae462"}},{"owner":"Änne"}]');
INSERT INTO "subscription" VALUES(2,'two',2,'[["out-engine-subscribed.two","out-engine-subscribed.three"],{"groupCondition":{"logic":"And","group":[{"kiwiCondition":{"key":"subject","pattern":"out-*.b.*","id":"49c531ea-c02f-4a77-9b9c-395653f7ee35"}},{"kiwiCondition":{"not":true,"key":"subject","pattern":"out-*.a.*","id":"916b6687-915b-46b0-85cc-f0e623103fe8"}}],"id":"123b56da-bdd3-4cc2-a3f5-c4a9bb1b14e5"}},{}]');
CREATE INDEX deleted_died ON deleted (died);
CREATE INDEX past_died ON past (died);
COMMIT;
