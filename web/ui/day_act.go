package ui

import (
	"context"
	"encoding/csv"
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
	zone := f.askZone("reconcile.timezone", "books.settings.zone")
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
	project, err := u.Store.Project(r.ctx, r.caller.Project)
	if err != nil {
		return nil, err
	}
	if begin, err := control.DayBegin(&project, day); err != nil || begin > r.now {
		// Otherwise the list would be kept, and only then the comparison refused.
		return nil, invalid("date", r.lang.text("books.run.future"))
	}
	ctx, cancel := context.WithTimeout(r.ctx, reconcileTimeout)
	defer cancel()
	items, message := readItems(r)
	if message != "" {
		return nil, invalid("items", message)
	}
	if len(items) > 0 {
		if _, err := u.Engine.ExpectItems(ctx, r.caller.Project, day, items); err != nil {
			return nil, err
		}
	}
	_, err = u.Engine.ReconcileDay(ctx, r.caller.Project, day, r.by())
	switch {
	case err != nil && r.timedOut(ctx):
		return nil, invalid("date", r.lang.text("books.run.toolong"))
	case err != nil:
		return nil, err
	}
	return u.redirectDone(r, booksPath+"/days/"+day, "books.run.done")
}

// readItems parses a list: one reference a line, with its topic after a tab or, as in CSV, after a comma. It
// skips empty lines, and reads at most one item more than a request may have. message is the error, or empty.
func readItems(r *request) (items []store.RefTopic, message string) {
	number := 0
	for line := range strings.Lines(r.text("items")) {
		number++
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if len(items) > control.MaxExpected {
			break
		}
		var err error
		cells := strings.Split(line, "\t")
		if len(cells) == 1 {
			cells, err = csv.NewReader(strings.NewReader(line)).Read()
		}
		if err != nil || len(cells) > 2 {
			return nil, r.lang.text("books.run.line", "line", number)
		}
		item := store.RefTopic{Ref: strings.TrimSpace(cells[0])}
		if len(cells) == 2 {
			item.Topic = strings.TrimSpace(cells[1])
		}
		items = append(items, item)
	}
	return items, ""
}
