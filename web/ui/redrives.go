package ui

import (
	"context"
	"encoding/json"
	"html/template"
	"net/url"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/ui/picture"
)

// Redrives is what pages ask of the store for redrives.
type Redrives interface {
	// Redrive returns store.ErrNotFound for one that the project does not have.
	Redrive(ctx context.Context, project, id string) (store.Redrive, error)
	// Redrives returns redrives newest first, those before the one named after; "" is the beginning.
	Redrives(ctx context.Context, project, after string, limit int) ([]store.Redrive, error)
}

// RedriveActs is what pages ask of the engine for redrives.
type RedriveActs interface {
	Redrive(ctx context.Context, project string, q dispatch.RedriveRequest, by store.Actor) (store.Redrive, error)
	// CountRedrive counts what one would be done to, no further than q.Most.
	CountRedrive(ctx context.Context, project string, q dispatch.RedriveRequest) (matched int64, more bool, err error)
	// SetRedrive pauses, resumes or cancels one: store.ErrNotFound, and store.ErrTerminal for one that has ended.
	SetRedrive(ctx context.Context, project, id string, to store.RedriveState, by store.Actor) (store.Redrive, error)
}

func (u *UI) redriveRoutes() []Route {
	return append([]Route{page("/redrives", u.redrives), page("/redrives/:id", u.redrive)}, u.redriveActRoutes()...)
}

// redrivesPage is the list of redrives.
type redrivesPage struct {
	base
	Rows []*redriveRow
	// Next is the address of the next page, First of the first; empty: there is none, or this is it.
	Next, First string
}

// A redriveRow is a redrive in a list.
type redriveRow struct {
	store.Redrive
	// FullID has its prefix.
	FullID string
	// Tone is the kind of badge that its state has.
	Tone string
	// Conditions are what its filter says, Unsaid how many of them are not shown.
	Conditions []fact
	Unsaid     int
	Bar        template.HTML
	// PerSecond is its rate, in the viewer's words.
	PerSecond string
}

// Bounds of what a list shows of a filter; the redrive's own page has all of it.
const (
	shownConditions = 3
	shownCondition  = 60
)

// redrives is GET /ui/redrives.
func (u *UI) redrives(r *request) (*answer, error) {
	p := &redrivesPage{base: u.base(r, "redrives", "redrives.title")}
	after := ""
	if c := readCursor(r.query("cursor")); c != nil {
		after, p.First = c.ID, p.With()
	}
	found, err := u.Redrives.Redrives(r.ctx, r.who.project, after, pageSize+1)
	if err != nil {
		return nil, err
	}
	if len(found) > pageSize {
		found = found[:pageSize]
		p.Next = p.With("cursor", cursorOf(&store.Cursor{ID: found[pageSize-1].ID}))
	}
	for i := range found {
		row := newRedriveRow(&p.base, &found[i])
		row.Bar = p.bar(&row.Redrive)
		if f, ok := filterOf(r, &row.Redrive); ok {
			row.Conditions = f.says(&p.base)
		}
		row.Unsaid = max(len(row.Conditions)-shownConditions, 0)
		row.Conditions = row.Conditions[:len(row.Conditions)-row.Unsaid]
		for j := range row.Conditions {
			if short, isShort := cut(row.Conditions[j].Value, shownCondition); isShort {
				row.Conditions[j].Value = short + "…"
			}
		}
		p.Rows = append(p.Rows, row)
	}
	return show("redrives", p)
}

// redriveTone is the kind of badge that a state has; empty: a plain one.
func redriveTone(s store.RedriveState) string {
	switch s {
	case store.RedriveGathering, store.RedriveRunning:
		return "busy"
	case store.RedrivePaused:
		return "warn"
	case store.RedriveDone:
		return "good"
	}
	return ""
}

func newRedriveRow(b *base, of *store.Redrive) *redriveRow {
	return &redriveRow{Redrive: *of, FullID: store.RedrivePrefix + of.ID, Tone: redriveTone(of.State), PerSecond: b.rate(of.Rate)}
}

// Verb is its action as the catalogue names it.
func (row *redriveRow) Verb() string { return "redrives.action." + string(row.Action) }

// Label is its state as the catalogue names it. One that was paused while it is being gathered says so.
func (row *redriveRow) Label() string {
	if row.Paused && row.State == store.RedriveGathering {
		return "redrives.state.gathering_paused"
	}
	return "redrives.state." + string(row.State)
}

// bar draws how far a redrive is.
func (b *base) bar(of *store.Redrive) template.HTML {
	return picture.Progress{
		Frame: picture.Frame{
			ID:    "bar-" + of.ID,
			Title: b.T("redrives.bar", "done", of.Done, "failed", of.Failed, "matched", of.Matched),
		},
		Parts: []picture.Part{
			{Name: b.T("redrives.done"), Value: float64(of.Done), Tone: picture.Good},
			{Name: b.T("redrives.failed"), Value: float64(of.Failed), Tone: picture.Bad},
		},
		Total: float64(of.Matched),
	}.HTML()
}

// ownRate is the rate, in callbacks a second, at which the engine does redrives that ask for none.
const ownRate = 1000

// paceOf is the rate at which a redrive is done.
func paceOf(asked store.Rate) store.Rate {
	if asked.Count <= 0 {
		return store.Rate{Count: ownRate, Per: time.Second}
	}
	return asked
}

// rate says how often a redrive does something.
func (b *base) rate(asked store.Rate) string {
	of := paceOf(asked)
	unit := map[time.Duration]string{time.Second: "s", time.Minute: "m", time.Hour: "h", 24 * time.Hour: "d"}[of.Per]
	if unit == "" {
		return of.String()
	}
	return b.T("redrives.per."+unit, "n", of.Count)
}

// filterOf reads the filter of a redrive as its caller wrote it. What cannot be read is shown as it is.
func filterOf(r *request, of *store.Redrive) (*filter, bool) {
	var members map[string]any
	if err := json.Unmarshal([]byte(of.Shown), &members); err != nil {
		return nil, false
	}
	values := make(url.Values)
	for name, member := range members {
		switch member := member.(type) {
		case []any:
			for _, one := range member {
				values.Add(name, textOfJSON(one))
			}
		case map[string]any: // labels
			for label, one := range member {
				values.Add(name+"."+label, textOfJSON(one))
			}
		default:
			values.Add(name, textOfJSON(member))
		}
	}
	if len(values["state"]) == 0 { // which the action has decided
		for _, s := range of.Filter.States {
			values.Add("state", string(s))
		}
	}
	f := r.readFilter(values)
	return f, len(f.wrong) == 0
}

// textOfJSON is a value of JSON as a parameter has it.
func textOfJSON(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		return value
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "" // what came from JSON can be made JSON again
	}
	return string(text)
}
