package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/app"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
)

const (
	// outboxesAtOnce is how many outbox tables are checked at a time. outboxRounds bounds the time for all of
	// them: it is that many times the timeout of one.
	outboxesAtOnce = 16
	outboxRounds   = 6
	// maxNames is how many sound outbox tables are named.
	maxNames = 5
)

// outboxFacts is what the check of an outbox table found. err is why it could not be checked.
type outboxFacts struct {
	name     string
	findings []source.Finding
	err      error
}

// readOutboxes checks the outbox tables that a server with these settings reads.
func readOutboxes(ctx context.Context, s *config.Settings, timeout time.Duration) []outboxFacts {
	sources, _ := s.Sources() // they were validated with the settings
	if !s.Has(config.RoleRelay) {
		sources = nil
	}
	ctx, cancel := context.WithTimeout(ctx, outboxRounds*timeout)
	defer cancel()
	list, slots := make([]outboxFacts, len(sources)), make(chan struct{}, outboxesAtOnce)
	var all sync.WaitGroup
	for i := range sources {
		all.Go(func() {
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
			case <-ctx.Done():
				list[i].err = errors.New("not checked: others did not respond in time")
				return
			}
			list[i] = within(ctx, timeout, func(ctx context.Context) outboxFacts {
				return readOutbox(ctx, &sources[i])
			}, func(err error) outboxFacts { return outboxFacts{err: err} })
		})
	}
	all.Wait()
	for i := range list {
		list[i].name = sources[i].Label()
	}
	return list
}

// readOutbox checks one outbox table.
func readOutbox(ctx context.Context, c *relay.SourceConfig) (f outboxFacts) {
	s, err := app.OpenSource(c)
	if err == nil {
		f.findings, err = s.Check(ctx)
	}
	f.err = err
	return f
}

// diagnoseOutboxes returns one line for all sound outbox tables, and one for each finding in another.
func diagnoseOutboxes(outboxes []outboxFacts) (list []diagnosis) {
	var sound []string
	for _, f := range outboxes {
		if f.err == nil && len(f.findings) == 0 {
			sound = append(sound, f.name)
		}
	}
	if n := len(sound); n > 0 {
		if n > maxNames {
			sound = append(sound[:maxNames], fmt.Sprintf("and %d more", n-maxNames))
		}
		d := fine("tables, rights and server are as needed: %s", strings.Join(sound, ", "))
		d.Check = "outbox tables"
		list = append(list, d)
	}
	for _, f := range outboxes {
		for _, d := range f.problems() {
			d.Check = "outbox " + f.name
			list = append(list, d)
		}
	}
	return list
}

// problems returns what is wrong with an outbox table, errors first.
func (f *outboxFacts) problems() (errs []diagnosis) {
	if f.err != nil {
		return []diagnosis{fails("check the source's dsn and password, and that this machine reaches the "+
			"server; rows wait in the table meanwhile",
			"%s", strings.Join(strings.Fields(f.err.Error()), " "))}
	}
	var warnings []diagnosis
	for _, found := range f.findings {
		if found.Level == source.LevelError {
			errs = append(errs, fails(found.Cure, "%s", found.Text))
		} else {
			warnings = append(warnings, warns(found.Cure, "%s", found.Text))
		}
	}
	return append(errs, warnings...)
}
