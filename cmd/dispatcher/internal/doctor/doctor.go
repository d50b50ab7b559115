// Package doctor checks what a server with the same settings would need: SQL, Redis, clocks, keys, egress,
// disk and limits. It changes nothing, and every question that it asks has a time limit.
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
)

// doctorPatience bounds every question that doctor asks of others: a database that hangs is an error in the
// table, not a doctor that hangs.
const doctorPatience = 5 * time.Second

// Command looks at everything that a server with the same settings would need, and changes nothing.
type Command struct {
	config.Flags
	JSON bool `help:"Print JSON for machines."`
}

// Help is what doctor --help says below the flags' summary.
func (*Command) Help() string {
	return "Takes the settings that serve takes, and may run beside a server. It changes nothing; in the " +
		"data directory it writes one small file and " +
		"removes it again. The exit code is 1 if anything is an error; warnings leave it 0."
}

// The statuses of a diagnosis.
const (
	statusOK      = "ok"
	statusWarning = "warning"
	statusError   = "error"
)

// A diagnosis is one line of what doctor found. Cure is empty where nothing needs one.
type diagnosis struct {
	Check  string `json:"check"`
	Status string `json:"status"`
	Found  string `json:"found"`
	Cure   string `json:"cure,omitempty"`
}

func fine(format string, args ...any) diagnosis {
	return diagnosis{Status: statusOK, Found: fmt.Sprintf(format, args...)}
}

func warns(cure, format string, args ...any) diagnosis {
	return diagnosis{Status: statusWarning, Found: fmt.Sprintf(format, args...), Cure: cure}
}

func fails(cure, format string, args ...any) diagnosis {
	return diagnosis{Status: statusError, Found: fmt.Sprintf(format, args...), Cure: cure}
}

// Run examines, shows the diagnoses, and ends with 1 if one of them is an error.
func (cmd *Command) Run(ctx context.Context, c *console.Console) error {
	l, err := config.Load(c, &cmd.Flags)
	if err != nil {
		return err
	}
	app.AdoptLibraries(app.NewLogger(c, &config.Settings{LogLevel: "error"}))
	d := &doctor{s: &l.Settings, lookup: net.DefaultResolver.LookupHost, patience: doctorPatience}
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
		showDiagnoses(c, diagnoses)
		fmt.Fprintf(c.Out, "\n%d ok, %d to be warned of, %d in error\n", counts[statusOK],
			counts[statusWarning], counts[statusError])
	}
	if counts[statusError] > 0 {
		return console.ErrPrinted
	}
	return nil
}

func showDiagnoses(c *console.Console, diagnoses []diagnosis) {
	t := c.NewTable("check", "status", "found", "cure")
	t.Wrap(3, 46)
	t.Wrap(4, 50)
	colours := map[string]console.Colour{statusOK: console.Green, statusWarning: console.Yellow,
		statusError: console.Red}
	for _, f := range diagnoses {
		t.Row(f.Check, c.Paint(f.Status, colours[f.Status]), f.Found, f.Cure)
	}
	t.Render()
}

// A doctor asks once and judges then: what was found is gathered first, by everybody's own deadline, and the
// diagnoses follow from it alone.
type doctor struct {
	s *config.Settings
	// lookup resolves a host name.
	lookup   func(ctx context.Context, host string) ([]string, error)
	patience time.Duration
}

// facts are what the settings name, and what was found there.
type facts struct {
	*config.Settings
	sql   sqlFacts
	index redisFacts
	// names is why no name server answers, if none does.
	names error
}

// checks judge the facts, in the order in which they are shown. One that does not apply says nothing.
var checks = []struct {
	name  string
	judge func(*facts) diagnosis
}{
	{"database", judgeDatabase},
	{"durability", judgeDurability},
	{"database writes", judgeWrites},
	{"connections", judgeConns},
	{"integrity", judgeIntegrity},
	{"migrations", judgeMigrations},
	{"redis", judgeRedis},
	{"redis memory", ofServers(judgeRedisMemory)},
	{"redis persistence", ofServers(judgeRedisPersistence)},
	{"redis cluster", judgeRedisCluster},
	{"index", judgeIndex},
	{"clocks", judgeClocks},
	{"admin key", judgeAdminKey},
	{"master key", judgeMasterKey},
	{"egress", judgeEgress},
	{"dns", judgeNames},
	{"data directory", judgeDataDir},
	{"disk", func(f *facts) diagnosis { return judgeDisk(f, filepath.Clean(f.DataDir)) }},
	{"disk", judgeDatabaseDisk},
	{"open files", judgeFiles},
	{"time-outs", judgeTimes},
}

// examine asks everything at once, each within the patience, and judges what was found.
func (d *doctor) examine(ctx context.Context) []diagnosis {
	f := &facts{Settings: d.s}
	var all sync.WaitGroup
	all.Go(func() {
		f.sql = within(ctx, d.patience, func(ctx context.Context) sqlFacts {
			return readSQL(ctx, d.s)
		}, func(err error) sqlFacts { return sqlFacts{err: err} })
	})
	all.Go(func() {
		f.index = within(ctx, d.patience, func(ctx context.Context) redisFacts {
			return readRedis(ctx, d.s)
		}, func(err error) redisFacts { return redisFacts{err: err} })
	})
	all.Go(func() {
		f.names = within(ctx, d.patience, d.askNames, func(error) error {
			return errors.New("did not answer in time")
		})
	})
	all.Wait()
	return f.judged()
}

// judged are the diagnoses.
func (f *facts) judged() (list []diagnosis) {
	for _, check := range checks {
		if d := check.judge(f); d.Status != "" {
			d.Check = check.name
			list = append(list, d)
		}
	}
	return list
}

// within runs f and returns what it returns; where f does not keep to its context, what late makes of that.
func within[T any](ctx context.Context, patience time.Duration, f func(context.Context) T,
	late func(error) T) T {
	inner, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	done := make(chan T, 1)
	go func() { done <- f(inner) }()
	timer := time.NewTimer(patience + patience/10)
	defer timer.Stop()
	select {
	case t := <-done:
		return t
	case <-timer.C:
		return late(fmt.Errorf("no answer within %s", patience))
	}
}
