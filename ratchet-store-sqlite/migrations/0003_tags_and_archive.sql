-- Tags, and the archive.

-- The tags of jobs. Jobs that have some have 64 in ratchet_jobs.flags, so that the others are never
-- looked up here.
CREATE TABLE ratchet_job_tags (
    tag TEXT NOT NULL,
    job BLOB NOT NULL,
    PRIMARY KEY (tag, job)
) STRICT, WITHOUT ROWID;

-- The tags of a job.
CREATE INDEX ratchet_job_tags_of_job ON ratchet_job_tags (job, tag);

-- Finished jobs that were moved out of the way, each as one document; the other columns are what
-- they are found by. Nothing but the archive's own statements reads or writes it.
CREATE TABLE ratchet_archive (
    id          BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    state       INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    archived_at INTEGER NOT NULL,
    queue       TEXT NOT NULL,
    kind        TEXT NOT NULL,
    document    TEXT NOT NULL
) STRICT;

-- The longest finished first.
CREATE INDEX ratchet_archive_finished ON ratchet_archive (finished_at, id);
