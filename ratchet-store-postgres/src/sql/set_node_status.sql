-- Sets the status of a live node that has another one. [node.status] Primary key.
UPDATE {schema}.nodes SET status = $2 WHERE node = $1 AND status < 3 AND status <> $2
