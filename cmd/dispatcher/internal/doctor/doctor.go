// Package doctor checks everything that a server with the same settings needs: SQL, Redis, clocks, keys,
// egress, disk and limits. It changes nothing, and each query has a timeout.
package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/app"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/web/signin"
)

// queryTimeout limits each query to another server, so that a database that hangs becomes an error in the
// table.
const queryTimeout = 5 * time.Second

// Command checks everything that a server with the same settings needs, and changes nothing.
type Command struct {
	config.Flags
	JSON bool `help:"Print JSON."`
}

// Help is the text below the summary of doctor --help.
func (*Command) Help() string {
	return "Reads its own flags, environment and file, like serve, and not the settings of a running " +
		"server: give it the same ones. It can run while a server runs, and changes nothing; in the data " +
		"directory it writes a small file and removes it. " +
		"The exit code is 1 if there is an error; it is 0 with warnings only."
}

// Statuses of a diagnosis.
const (
	statusOK      = "ok"
	statusWarning = "warning"
	statusError   = "error"
)

// diagnosis is one line of the output. Cure says what to do; it is empty if nothing is wrong.
type diagnosis struct {
	Check  string `json:"check"`
	Status string `json:"status"`
	Found  string `json:"found"`
	Cure   string `json:"cure,omitempty"`
}

// fine, warns and fails return a diagnosis without a name, which diagnoses adds.
func fine(format string, args ...any) diagnosis {
	return diagnosis{Status: statusOK, Found: fmt.Sprintf(format, args...)}
}

func warns(cure, format string, args ...any) diagnosis {
	return diagnosis{Status: statusWarning, Found: fmt.Sprintf(format, args...), Cure: cure}
}

func fails(cure, format string, args ...any) diagnosis {
	return diagnosis{Status: statusError, Found: fmt.Sprintf(format, args...), Cure: cure}
}

// Run prints the diagnoses. The exit code is 1 if one of them is an error.
func (cmd *Command) Run(ctx context.Context, c *console.Console) error {
	l, err := config.Load(c, &cmd.Flags)
	if err != nil {
		return err
	}
	app.AdoptLibraries(app.NewLogger(c, &config.Settings{LogLevel: "error"}))
	d := &doctor{s: &l.Settings, lookup: net.DefaultResolver.LookupHost, timeout: queryTimeout}
	diagnoses := d.examine(ctx)
	for i := range diagnoses {
		f := &diagnoses[i]
		f.Found, f.Cure = console.Printable(l.Scrub(f.Found)), console.Printable(l.Scrub(f.Cure))
	}
	counts := map[string]int{}
	for _, f := range diagnoses {
		counts[f.Status]++
	}
	if cmd.JSON {
		encoder := json.NewEncoder(c.Out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(map[string]any{
			"ok": counts[statusError] == 0, "errors": counts[statusError], "warnings": counts[statusWarning],
			"checks": diagnoses,
		}); err != nil {
			return fmt.Errorf("write the diagnoses: %w", err)
		}
	} else {
		fmt.Fprintln(c.Out, "checked with the settings of this command, not with those of a running server:")
		fmt.Fprintln(c.Out)
		printDiagnoses(c, diagnoses)
		fmt.Fprintf(c.Out, "\nok: %d, warnings: %d, errors: %d\n",
			counts[statusOK], counts[statusWarning], counts[statusError])
	}
	if counts[statusError] > 0 {
		return console.ErrPrinted
	}
	return nil
}

// printDiagnoses prints a table that fits into 80 columns: the cure stands below what was found.
func printDiagnoses(c *console.Console, diagnoses []diagnosis) {
	t := c.NewTable("check", "status", "found, and what to do")
	t.Wrap(3, 49)
	colours := map[string]console.Colour{statusOK: console.Green, statusWarning: console.Yellow,
		statusError: console.Red}
	for _, f := range diagnoses {
		t.Row(f.Check, c.Paint(f.Status, colours[f.Status]), f.Found)
		if f.Cure != "" {
			t.Row("", "", "→ "+f.Cure)
		}
	}
	t.Render()
}

// doctor first gathers the facts, each query within the timeout. The checks then depend only on the facts.
type doctor struct {
	s *config.Settings
	// lookup resolves a host name.
	lookup  func(ctx context.Context, host string) ([]string, error)
	timeout time.Duration // of each query
}

// facts are the settings and what the queries found.
type facts struct {
	*config.Settings
	sql   sqlFacts
	index redisFacts
	// dns is why no name server responds; nil: one does.
	dns error
	// signIn is why the identity provider cannot be used; nil: it can, or there is none.
	signIn   error
	outboxes []outboxFacts
}

// checks are all checks, in the order of the output. A check that does not apply returns the zero diagnosis.
var checks = []struct {
	name string
	run  func(*facts) diagnosis
}{
	{"addresses", checkAddresses},
	{"database", checkDatabase},
	{"durability", checkDurability},
	{"database writes", checkWrites},
	{"connections", checkConns},
	{"integrity", checkIntegrity},
	{"migrations", checkMigrations},
	{"redis", checkRedis},
	{"redis memory", ofServers(checkRedisMemory)},
	{"redis persistence", ofServers(checkRedisPersistence)},
	{"redis cluster", checkRedisCluster},
	{"index", checkIndex},
	{"clocks", checkClocks},
	{"admin key", checkAdminKey},
	{"master key", checkMasterKey},
	{"sign-in", checkSignIn},
	{"alert sinks", checkSinks},
	{"egress", checkEgress},
	{"dns", checkDNS},
	{"data directory", checkDataDir},
	{"disk", func(f *facts) diagnosis { return checkDisk(f, filepath.Clean(f.DataDir)) }},
	{"disk", checkDatabaseDisk},
	{"open files", checkFiles},
	{"timeouts", checkTimes},
}

// examine runs all queries at once, then the checks.
func (d *doctor) examine(ctx context.Context) []diagnosis {
	f := &facts{Settings: d.s}
	var all sync.WaitGroup
	all.Go(func() {
		f.sql = within(ctx, d.timeout, func(ctx context.Context) sqlFacts {
			return readSQL(ctx, d.s)
		}, func(err error) sqlFacts { return sqlFacts{err: err} })
	})
	all.Go(func() {
		f.index = within(ctx, d.timeout, func(ctx context.Context) redisFacts {
			return readRedis(ctx, d.s)
		}, func(err error) redisFacts { return redisFacts{err: err} })
	})
	all.Go(func() {
		f.dns = within(ctx, d.timeout, d.askDNS, func(error) error {
			return errors.New("no response in time")
		})
	})
	all.Go(func() {
		if d.s.OIDCIssuer == "" {
			return
		}
		f.signIn = within(ctx, d.timeout, func(ctx context.Context) error {
			provider := signin.New(d.s.SignIn())
			defer provider.CloseIdle()
			return provider.Check(ctx)
		}, func(err error) error { return err })
	})
	all.Go(func() { f.outboxes = readOutboxes(ctx, d.s, d.timeout) })
	all.Wait()
	return f.diagnoses()
}

// diagnoses runs the checks.
func (f *facts) diagnoses() (list []diagnosis) {
	for _, check := range checks {
		if d := check.run(f); d.Status != "" {
			d.Check = check.name
			list = append(list, d)
		}
	}
	return append(list, diagnoseOutboxes(f.outboxes)...)
}

// within runs f with a timeout and returns its result. If f ignores its context, within returns the result of
// late soon after the timeout.
func within[T any](ctx context.Context, timeout time.Duration, f func(context.Context) T,
	late func(error) T) T {
	inner, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	done := make(chan T, 1)
	go func() { done <- f(inner) }()
	timer := time.NewTimer(timeout + timeout/10)
	defer timer.Stop()
	select {
	case t := <-done:
		return t
	case <-timer.C:
		return late(fmt.Errorf("no response within %s", timeout))
	}
}
