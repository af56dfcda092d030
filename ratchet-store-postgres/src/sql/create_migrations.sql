-- Where the applied migrations are kept.
CREATE TABLE {schema}.migrations (
    version    integer PRIMARY KEY,
    name       text NOT NULL,
    checksum   text NOT NULL,
    applied_at bigint NOT NULL
)
