package app_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/app"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/apptest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
)

// TestServeNotifiesTheServiceManager starts a server as systemd does with Type=notify. At READY=1 the server
// answers, and at a stop it announces how long the drain may take.
func TestServeNotifiesTheServiceManager(t *testing.T) {
	t.Parallel()
	for name, socket := range map[string]string{
		"path":     filepath.Join(t.TempDir(), "notify"),
		"abstract": fmt.Sprint("@dispatcher-test-", os.Getpid()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			defer manager.Close()
			term := program.Terminal("NOTIFY_SOCKET=" + socket)
			s := apptest.Settings(t, "--shutdown-delay=10ms", "--drain-timeout=2m")
			srv, err := app.New(t.Context(), &term.Console, s, app.NewLogger(&term.Console, s))
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- srv.Run(ctx) }()
			if got := nextNotice(t, manager); got != "READY=1\nSTATUS=serving" {
				t.Errorf("first notice: %q", got)
			}
			res, err := http.Get("http://" + srv.Web.OpsAddr().String() + "/healthz")
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Errorf("/healthz after READY=1: %d", res.StatusCode)
			}
			stop()
			cmdtest.Contains(t, nextNotice(t, manager), "STOPPING=1\n", "STATUS=attempts in flight have 2m0s",
				"EXTEND_TIMEOUT_USEC=165010000")
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if err := srv.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// nextNotice waits for the next datagram to the service manager.
func nextNotice(t *testing.T, manager *net.UnixConn) string {
	t.Helper()
	if err := manager.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	n, err := manager.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

// TestServeWithoutTheServiceManager serves although nothing reads from the socket that it was given.
func TestServeWithoutTheServiceManager(t *testing.T) {
	t.Parallel()
	term := program.Terminal("NOTIFY_SOCKET=" + filepath.Join(t.TempDir(), "absent"))
	s := apptest.Settings(t, "--log-level=warn")
	srv, err := app.New(t.Context(), &term.Console, s, app.NewLogger(&term.Console, s))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := srv.Run(ctx); err != nil {
		t.Error(err)
	}
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	if got := term.Stderr.String(); strings.Count(got, "service manager is not notified") != 2 {
		t.Errorf("log: %s", got)
	}
}
