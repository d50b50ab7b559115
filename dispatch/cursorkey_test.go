package dispatch_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"sync"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestCursorKey: all processes have the same one, which SQL has sealed, and no caller can read it or give it
// a successor.
func TestCursorKey(t *testing.T) {
	t.Parallel()
	db, err := openDatabase(t.Context(), databasePath(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	client, err := outbound.New(outbound.Options{Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	start := func() *dispatch.Engine {
		keys, err := secret.NewKeyring([]string{base64.StdEncoding.EncodeToString(make([]byte, secret.MasterKeyBytes))})
		if err != nil {
			t.Fatal(err)
		}
		e, err := dispatch.New(dispatch.Options{Store: db, Schedule: memq.New(memq.Options{}), Sender: client, Keyring: keys})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	engines := []*dispatch.Engine{start(), start(), start(), start()}
	got := make([][]byte, 2*len(engines))
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			var err error
			if got[i], err = engines[i/2].CursorKey(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i, key := range got {
		if len(key) != 32 || !bytes.Equal(key, got[0]) {
			t.Errorf("process %d has a key of %d bytes, which is not the first one's", i/2, len(key))
		}
	}
	rows, err := db.OwnedSecrets(t.Context(), "", "", 0)
	if err != nil || len(rows) != 1 || rows[0].Use != "cursor" || bytes.Contains(rows[0].Ciphertext, got[0]) {
		t.Errorf("in SQL: %+v, %v", rows, err)
	}
	for _, project := range []string{"", store.DefaultProject} {
		var invalid *store.InvalidError
		q := control.SecretQuery{Use: "cursor"}
		if _, err := engines[0].RevealSecret(t.Context(), project, q, store.Actor{}); !errors.As(err, &invalid) {
			t.Errorf("shown in project %q: %v", project, err)
		}
		if _, _, err := engines[0].RotateSecret(t.Context(), project, q, control.Rotation{}, store.Actor{}); !errors.As(err, &invalid) {
			t.Errorf("rotated in project %q: %v", project, err)
		}
	}
}
