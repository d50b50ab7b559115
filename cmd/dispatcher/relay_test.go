package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/apptest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// TestRelayCommands goes the way of an operator: the tables of "relay ddl", a refused row, its retry before
// and after the cause is fixed, a drop and a replay. The relay of a real server carries the acts out.
func TestRelayCommands(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real PostgreSQL and a real MariaDB")
	}
	for _, dialect := range []source.Dialect{source.Postgres, source.MySQL} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			outbox := apptest.EmptyOutbox(t, dialect)
			ddl := program.Terminal()
			ddl.Ends(t, console.ExitOK, "relay", "ddl", "--dialect", string(dialect), "--keep")
			outbox.Exec(t, ddl.Stdout.String())
			setting, err := json.Marshal([]map[string]string{
				{"name": "pay", "dsn": outbox.DSN, "poll": "20ms", "keep": "1h"},
			})
			if err != nil {
				t.Fatal(err)
			}
			server := apptest.Start(t, apptest.Settings(t, "--relay="+string(setting)))
			run := func(code int, want string, args ...string) {
				t.Helper()
				term := program.Terminal()
				term.Ends(t, code, append(args, server.Flags()...)...)
				cmdtest.Contains(t, term.Stdout.String()+term.Stderr.String(), want)
			}
			refused := func(id string) {
				t.Helper()
				testserver.Until(t, id+" is refused", func() bool {
					term := program.Terminal()
					args := append([]string{"relay", "refused", "pay"}, server.Flags()...)
					term.Ends(t, console.ExitOK, args...)
					return strings.Contains(term.Stdout.String(), id)
				})
			}
			insert := func(id, request string) {
				t.Helper()
				if err := outbox.Insert(t.Context(), id, request); err != nil {
					t.Fatal(err)
				}
			}
			testserver.Until(t, "the relay reports", func() bool {
				term := program.Terminal()
				return term.Invoke(append([]string{"relay", "status", "pay"}, server.Flags()...)...) ==
					console.ExitOK
			})
			insert("order-1", `{"endpoint":"merchant-1","payload":1,"delay":"1h"}`)
			refused("order-1")
			run(console.ExitOK, "1 refused rows: 0 accepted, 0 replayed, 1 refused", "relay", "retry", "pay")
			run(console.ExitOK, "", "endpoint", "create", "https://shop.example/", "--external-id", "merchant-1")
			run(console.ExitOK, "1 refused rows: 1 accepted, 0 replayed, 0 refused", "relay", "retry", "pay",
				"--id", "order-1", "--code", "invalid")
			for _, action := range []string{"retry", "drop"} {
				run(console.ExitFailed, `no refused row has the id "order-1"`, "relay", action, "pay", "--id",
					"order-1")
			}
			insert("order-2", `{"url":`)
			refused("order-2")
			run(console.ExitOK, "1 of 1 refused rows deleted", "relay", "drop", "pay", "--all")

			insert("order-3", `{"url":"https://shop.example/","payload":1,"delay":"1h"}`)
			testserver.Until(t, "order-3 is kept, and order-1 that was retried", func() bool {
				return outbox.Count(t, "dispatcher_outbox_done") == 2
			})
			since := time.Now().Add(-time.Hour).Format(time.RFC3339)
			run(console.ExitOK, "2 kept rows; nothing was submitted", "relay", "replay", "pay",
				"--since", since, "--dry-run")
			run(console.ExitOK, "2 kept rows: 0 accepted, 2 replayed, 0 refused", "relay", "replay", "pay",
				"--since", since)
			run(console.ExitFailed, "409 relay_held", "relay", "forget", "pay")
			server.End(t)
		})
	}
}
