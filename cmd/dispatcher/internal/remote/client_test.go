package remote

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

func TestClientKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, config.AdminKeyFile), []byte("in-dir\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := cmdtest.WriteFile(t, "key", "in-file\n")
	for _, tc := range []struct {
		env   []string
		flags Flags
		want  string
	}{
		{[]string{"DISPATCHER_KEY=env"}, Flags{Key: "flag", DataDir: dir}, "flag"},
		{[]string{"DISPATCHER_KEY=env", "DISPATCHER_ADMIN_KEY=admin"}, Flags{DataDir: dir}, "env"},
		{[]string{"DISPATCHER_ADMIN_KEY=admin", "DISPATCHER_KEY_FILE=" + file}, Flags{DataDir: dir}, "admin"},
		{[]string{"DISPATCHER_ADMIN_KEY_FILE=" + file}, Flags{DataDir: dir}, "in-file"},
		{[]string{"DISPATCHER_DATA_DIR=" + dir}, Flags{}, "in-dir"},
		{nil, Flags{DataDir: dir}, "in-dir"},
	} {
		got, origin, err := clientKey(&new(cmdtest.Program).Terminal(tc.env...).Console, tc.flags)
		if err != nil || got != tc.want || origin == "" {
			t.Errorf("%v %+v: got %q (%v), not %q", tc.env, tc.flags, got, err, tc.want)
		}
	}
}

// TestUse checks that calls go through the last transport that was set, with its timeout.
func TestUse(t *testing.T) {
	t.Parallel()
	term := new(cmdtest.Program).Terminal()
	cl, err := New(&term.Console, Flags{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	transport := testserver.InProcess{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, limited := r.Context().Deadline(); !limited {
			t.Error("the call has no timeout")
		}
		w.WriteHeader(http.StatusTeapot)
	})}
	if err := cl.Use(transport, time.Minute); err != nil {
		t.Fatal(err)
	}
	_, err = cl.Call(t.Context(), http.MethodGet, "/v1/stats", nil, nil)
	if refused, ok := errors.AsType[*client.Error](err); !ok || refused.Status != http.StatusTeapot {
		t.Errorf("the call did not use the transport: %v", err)
	}
}
