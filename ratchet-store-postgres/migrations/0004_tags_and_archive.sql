-- Tags, and the archive.

-- The tags of jobs. Jobs that have some have 64 in jobs.flags, so that the others are never looked
-- up here.
CREATE TABLE {schema}.job_tags (
    job uuid NOT NULL,
    tag text COLLATE "C" NOT NULL
);

-- Finished jobs that were moved out of the way, each as one document; the other columns are what
-- they are found by. Nothing but the archive's own statements reads or writes it.
CREATE TABLE {schema}.archive (
    id          uuid NOT NULL,
    finished_at bigint NOT NULL,
    archived_at bigint NOT NULL,
    state       smallint NOT NULL,
    queue       text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    document    text NOT NULL
);

-- Empty pages, as in the first migration, so that plans made early use the indexes.
ALTER TABLE {schema}.job_tags SET (fillfactor = 10, vacuum_truncate = off);
INSERT INTO {schema}.job_tags (job, tag)
SELECT '00000000-0000-0000-0000-000000000000', repeat(' ', 600) FROM generate_series(1, 128);
DELETE FROM {schema}.job_tags;
ALTER TABLE {schema}.archive SET (fillfactor = 10, vacuum_truncate = off);
INSERT INTO {schema}.archive (id, finished_at, archived_at, state, queue, kind, document)
SELECT '00000000-0000-0000-0000-000000000000', 0, 0, 6, '', '', repeat(' ', 600)
FROM generate_series(1, 128);
DELETE FROM {schema}.archive;
ALTER TABLE {schema}.job_tags SET (fillfactor = 100);
ALTER TABLE {schema}.archive SET (fillfactor = 100);

ALTER TABLE {schema}.job_tags ADD CONSTRAINT job_tags_pkey PRIMARY KEY (tag, job);
ALTER TABLE {schema}.archive ADD CONSTRAINT archive_pkey PRIMARY KEY (id);

-- The tags of a job.
CREATE INDEX job_tags_of_job ON {schema}.job_tags (job, tag);
-- The archived jobs, the longest finished first.
CREATE INDEX archive_finished ON {schema}.archive (finished_at, id);
