-- Where the applied migrations are kept.
CREATE TABLE {schema}.migrations (
    version    int NOT NULL,
    name       nvarchar(128) NOT NULL,
    checksum   nvarchar(128) NOT NULL,
    applied_at bigint NOT NULL,
    CONSTRAINT migrations_pkey PRIMARY KEY (version)
)
