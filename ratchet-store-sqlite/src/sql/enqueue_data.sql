-- Appends what is fixed at the enqueue. [enqueue.created] [recurring.origin] [claim.version]
INSERT INTO ratchet_job_data (id, payload, retry, timeout, stall_timeout,
                              unique_key, idempotency_key, lane, traceparent, tracestate,
                              recurring, slot, payload_version)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
