package secret

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Store is what this package needs of SQL. sqlstore.DB satisfies it.
type Store interface {
	// OwnedSecrets returns what an endpoint, or with an empty owner the project itself, has of each use,
	// newest first: the present ones and those that still sign beside them at now.
	OwnedSecrets(ctx context.Context, project, owner string, now int64) ([]store.Secret, error)
	// AddSecret stores a new present secret and retires the present one of its owner and use, if any, at
	// retireAt. With onlyIfNone it does nothing if there is one already (several processes may start at
	// once).
	AddSecret(ctx context.Context, s store.Secret, retireAt int64, onlyIfNone bool, by store.Actor) error
	// SealedKeys returns, of every table, one row for each master key that is used in it at now; with zero
	// also of what is not used any more.
	SealedKeys(ctx context.Context, now int64) ([]store.SealedRow, error)
}
