-- The applied migrations, in order.
SELECT version, name, checksum FROM {schema}.migrations ORDER BY version
