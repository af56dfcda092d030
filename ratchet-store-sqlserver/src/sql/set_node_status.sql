-- Sets the status of a live node that has another one. [node.status] Primary key.
UPDATE {schema}.nodes SET status = @P2
WHERE node = CONVERT(binary(16), @P1) AND status < 3 AND status <> @P2
