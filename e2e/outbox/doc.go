// Package outbox runs module outbox on real servers: each row has the bytes of its callback, through
// database/sql and pgx, on PostgreSQL and MariaDB. It tests nothing that a fake server can show.
package outbox
