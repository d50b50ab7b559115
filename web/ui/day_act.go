package ui

import (
	"context"
	"encoding/csv"
	"strings"
	"time"
	"unicode/utf8"

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
	remove := f.ask("remove", textField, "books.run.remove")
	remove.Help, remove.Mono, remove.Rows = f.T("books.run.remove.help"), true, 4
	f.Fields = []field{day, items, remove, f.ask("clear", checkField, "books.run.clear"), f.askReason()}
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
	if err := u.changeList(ctx, r, day); err != nil {
		return nil, err
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

// changeList changes the list of a day as the form says. It reads the whole form before it changes anything.
func (u *UI) changeList(ctx context.Context, r *request, day string) error {
	added, message := readItems(r, "items", control.MaxExpected)
	if message != "" {
		return invalid("items", message)
	}
	removed, message := readItems(r, "remove", control.MaxExpected)
	if message != "" {
		return invalid("remove", message)
	}
	project := r.caller.Project
	if r.form.Has("clear") {
		if _, err := u.Engine.ClearExpected(ctx, project, day, r.by()); err != nil && !notFound(err) {
			return err
		}
	} else if len(removed) > 0 {
		_, err := u.Engine.RemoveExpected(ctx, project, day, removed, r.by())
		switch {
		case notFound(err):
			return invalid("remove", r.lang.text("books.run.remove.none"))
		case err != nil:
			return err
		}
	}
	if len(added) == 0 {
		return nil
	}
	_, err := u.Engine.ExpectItems(ctx, project, day, added, r.by())
	return err
}

// readItems parses a list in a field: one reference a line, with its topic after a tab or, as in CSV, after a
// comma. It skips empty lines. message is the error with the number of the line, or empty.
func readItems(r *request, field string, most int) (items []store.RefTopic, message string) {
	number := 0
	for line := range strings.Lines(r.text(field)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" {
			continue
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
		switch {
		case item.Ref == "":
			return nil, r.lang.text("books.run.line", "line", number)
		case utf8.RuneCountInString(item.Ref) > maxRef, utf8.RuneCountInString(item.Topic) > maxRef:
			return nil, r.lang.text("compare.long", "line", number, "n", maxRef)
		case len(items) == most:
			return nil, r.lang.text("compare.many", "n", most)
		}
		items = append(items, item)
	}
	return items, ""
}
