package secret

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Store is the part of SQL that this package uses. sqlstore.DB implements it.
type Store interface {
	// OwnedSecrets returns the secrets of an endpoint, or with an empty owner of the project: for each use
	// the current one and those whose overlap has not ended at now, newest first.
	OwnedSecrets(ctx context.Context, project, owner string, now int64) ([]store.Secret, error)
	// AddSecret stores a new current secret, and retires the previous one of its owner and use at retireAt.
	// With onlyIfNone it does nothing if one exists, because several processes may start at once.
	AddSecret(ctx context.Context, s store.Secret, retireAt int64, onlyIfNone bool, by store.Actor) error
	// SealedKeys returns, for each table, one row for each master key that is in use at now. Zero includes
	// keys that only expired rows use.
	SealedKeys(ctx context.Context, now int64) ([]store.SealedRow, error)
}
