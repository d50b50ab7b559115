package relay

import (
	"context"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
)

// A Conn is a connection to a source. One goroutine uses it.
type Conn interface {
	// Read returns at most limit rows after a position in the order of their numbers, and whether there are
	// more. It reads at most source.MaxPage bytes, so a page may be short although there are more. A patient
	// read may take very long.
	Read(ctx context.Context, after int64, limit int, patient bool) (rows []source.Row, more bool, err error)
	// Remove deletes rows, and keeps a copy if the source keeps removed rows. Rows that are not there are no
	// error. After an error some of the rows may be removed.
	Remove(ctx context.Context, keys []source.Key) (int, error)
	// Refuse moves rows to the refused table. After an error some of the rows may be moved.
	Refuse(ctx context.Context, rows []source.Refusal) (int, error)
	// Waiting counts rows after a position, up to a limit.
	Waiting(ctx context.Context, after int64, limit int) (int, error)

	// Refused returns the newest refused rows. CountRefused counts refused rows up to a limit.
	Refused(ctx context.Context, limit int) ([]source.RefusedRow, error)
	CountRefused(ctx context.Context, f source.Filter, limit int) (int, error)
	// ReadRefused returns refused rows after a key in the order of id and number.
	ReadRefused(ctx context.Context, f source.Filter, after source.Key, limit int) ([]source.Row, error)
	// RemoveRefused is Remove for refused rows that were accepted after all.
	RemoveRefused(ctx context.Context, keys []source.Key) (int, error)
	// DropRefused deletes at most limit refused rows, without a copy.
	DropRefused(ctx context.Context, f source.Filter, limit int) (int, error)
	// UpdateRefused changes code and problem of refused rows.
	UpdateRefused(ctx context.Context, rows []source.Refusal) (int, error)

	// ReadKept returns rows that were removed in a span of time, in the order of removal and after a place.
	// A zero until is no limit. The last page is empty. CountKept counts them up to a limit.
	ReadKept(ctx context.Context, since, until time.Time, after source.Kept, limit int) ([]source.KeptRow,
		error)
	CountKept(ctx context.Context, since, until time.Time, limit int) (int, error)
	// PruneKept deletes at most limit rows that were removed longer ago than keep.
	PruneKept(ctx context.Context, keep time.Duration, limit int) (int, error)
	// Writable fails with source.ErrBroken if the server has become a replica, for example.
	Writable(ctx context.Context) error
	Close()
}

var _ Conn = (*source.Conn)(nil)

// A Sink is the dispatcher of one project. The errors of Submit are a *client.Error, or those of a transport.
type Sink interface {
	Submit(ctx context.Context, source string, b client.RelayBatch) (client.RelayReply, error)
}
