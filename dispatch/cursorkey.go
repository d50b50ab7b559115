package dispatch

import (
	"context"
	"fmt"
)

// useCursor is the use of the key that signs the cursors of lists. It is none of sign.Uses: no caller can
// read or rotate it.
const useCursor = "cursor"

// CursorKey returns the 32 bytes that sign the cursors of lists. They are the installation's, the same in all
// processes, and never rotated. The first call makes them, and they are kept in SQL as other secrets are, of
// no project. The caller must not change them. Its error is SQL's, or that the key ring cannot open them.
func (e *Engine) CursorKey(ctx context.Context) ([]byte, error) {
	secrets, err := e.secrets.project(ctx, "", useCursor, e.clock.now())
	if err != nil {
		return nil, fmt.Errorf("the key of cursors: %w", err)
	}
	return secrets[0].Key, nil
}
