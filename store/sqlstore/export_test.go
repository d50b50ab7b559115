package sqlstore

import (
	"context"
	"database/sql"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A TestDB is a DB whose rows can be damaged, and whose lanes can be set.
type TestDB struct{ *DB }

// Damage makes a callback's policy undecodable.
func (db TestDB) Damage(ctx context.Context, id string) error {
	return db.change(ctx, func(t *tx) error {
		_, err := t.exec(`UPDATE callbacks SET policy = '{"tiers": [1' WHERE id = $1`, id)
		return err
	})
}

// SetLane writes a lane's settings.
func (db TestDB) SetLane(ctx context.Context, l store.Lane) error {
	return db.change(ctx, func(t *tx) error {
		_, err := t.exec(`UPDATE lanes SET concurrency = $1, paused_until = $2, version = $3 WHERE id = $4`,
			l.Limit, l.PausedUntil, l.Version, l.ID)
		return err
	})
}

// HoldWriter keeps the writer of an SQLite store busy until the returned function is called.
func HoldWriter(db *DB) (release func()) {
	begun, end := make(chan struct{}), make(chan struct{})
	go func() {
		_ = db.accepts.do(context.Background(), false, func() error {
			close(begun)
			<-end
			return nil
		})
	}()
	<-begun
	return func() { close(end) }
}

// IdleLimits are what sessions of the group writers, and of the other pool, say of transactions that are left alone.
func IdleLimits(ctx context.Context, db *DB) (limits [2]string, err error) {
	for i, pool := range []*sql.DB{db.groups, db.pool} {
		if err := pool.QueryRowContext(ctx, "SHOW idle_in_transaction_session_timeout").Scan(&limits[i]); err != nil {
			return limits, err
		}
	}
	return limits, nil
}

// SetWindow sets how many rows one statement looks through for claims that are alive.
func SetWindow(db *DB, rows int) { db.window = rows }
