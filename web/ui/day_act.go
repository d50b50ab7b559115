package ui

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// booksActs returns the routes of the settings of the daily reconciliation.
func (u *UI) booksActs() []Route {
	return actsOn(u, kind[store.Project]{
		path: "/books/", texts: "books.", section: "books", begin: (*form).beginProject,
		id:   func(r *request) (string, error) { return r.caller.Project, nil },
		find: func(r *request, id string) (store.Project, error) { return u.Store.Project(r.ctx, id) },
	}, []actOn[store.Project]{
		{name: "settings", scope: store.ScopeAdmin, ask: (*form).askDaily, do: u.setDaily},
	})
}

func (f *form) askDaily(project store.Project) error {
	s := project.Reconcile
	if s.Timezone == "" {
		s.Timezone = f.zone.name
	}
	at := f.ask("reconcile.at", timeField, "books.settings.at")
	at.Value = s.At
	zone := f.askMono("reconcile.timezone", "books.settings.zone", "Asia/Shanghai")
	zone.Value = s.Timezone
	list := f.ask("expect_list", checkField, "books.settings.list")
	list.Checked = s.ExpectList
	f.Fields = []field{at, zone, list}
	return nil
}

// setDaily changes the daily run. Without a time it ends.
func (u *UI) setDaily(r *request, project string) error {
	s := new(store.Reconciling)
	if at := r.value("reconcile.at"); at != "" {
		*s = store.Reconciling{At: at, Timezone: r.value("reconcile.timezone"),
			ExpectList: r.form.Has("expect_list")}
	}
	_, err := u.Engine.PatchProject(r.ctx, project, control.ProjectChange{Reconcile: s}, r.by())
	return err
}

// askRunDay is the form that adds a list to a day and compares the day.
func (u *UI) askRunDay(r *request) (*form, error) {
	f := u.form(r, "books", "books.run", booksPath, ".list")
	day := f.ask("date", dateField, "books.day")
	day.Value, day.Required = r.query("date"), true
	if day.Value == "" {
		day.Value = time.UnixMilli(dayBegin(r, -1)).In(r.zone.Location).Format(time.DateOnly)
	}
	items := f.ask("items", textField, "books.run.items")
	items.Help = f.T("books.run.items.help", "n", control.MaxExpected)
	items.Mono, items.Rows, items.Suggest = true, 8, "order-20261121-0001,payment.succeeded"
	f.Fields = []field{day, items, f.askReason()}
	return f, nil
}

// runDay is POST /ui/books/run.
func (u *UI) runDay(r *request) (*response, error) {
	day := r.value("date")
	if !isDay(day) {
		return nil, invalid("date", r.lang.text("books.run.day"))
	}
	ctx, cancel := context.WithTimeout(r.ctx, reconcileTimeout)
	defer cancel()
	items := readItems(r.text("items"))
	if len(items) > 0 {
		if _, err := u.Engine.ExpectItems(ctx, r.caller.Project, day, items); err != nil {
			return nil, err
		}
	}
	_, err := u.Engine.ReconcileDay(ctx, r.caller.Project, day, r.by())
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, invalid("date", r.lang.text("books.run.future"))
	case err != nil && r.timedOut(ctx):
		return nil, invalid("date", r.lang.text("books.run.toolong"))
	case err != nil:
		return nil, err
	}
	return u.redirectDone(r, booksPath+"/days/"+day, "books.run.done")
}

// readItems parses a list: one reference a line, with its topic after a comma or a tab. It skips empty lines,
// and reads no more items than a request may have, and one.
func readItems(text string) (items []store.RefTopic) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if len(items) > control.MaxExpected {
			break
		}
		item := store.RefTopic{Ref: line}
		if at := strings.LastIndexAny(line, ",\t"); at >= 0 {
			item = store.RefTopic{Ref: strings.TrimSpace(line[:at]), Topic: strings.TrimSpace(line[at+1:])}
		}
		items = append(items, item)
	}
	return items
}
