package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// deletePreset is DELETE of one of the project's own: 204. What was accepted with it keeps what it was.
func (a *API) deletePreset(kind store.PresetKind) handler {
	return func(ctx context.Context, c *gin.Context, who caller) error {
		name, err := pathName(c, "name")
		if err != nil {
			return err
		}
		reason, err := readReason(c)
		if err != nil {
			return err
		}
		if err := a.Engine.DeletePreset(ctx, who.Project, kind, name, who.By(reason)); err != nil {
			return err
		}
		noContent(c)
		return nil
	}
}

// pathName returns a name from the path. What no name can be is not found.
func pathName(c *gin.Context, param string) (string, error) {
	name := c.Param(param)
	wrong := query.CheckText(name, false)
	if wrong != "" || name == "" {
		return "", store.ErrNotFound
	}
	return name, nil
}

// unprefixed names the fields of an error as they stand in a request whose body is what others have as a field of that name.
func unprefixed(err error, prefix string) error {
	var invalid *store.InvalidError
	if !errors.As(err, &invalid) {
		return err
	}
	named := &store.InvalidError{Fields: make([]store.FieldError, len(invalid.Fields))}
	for i, f := range invalid.Fields {
		if f.Field = strings.TrimPrefix(f.Field, prefix); f.Field == "" {
			f.Field = request
		}
		named.Fields[i] = f
	}
	return named
}

// A preset is a policy, a success rule or a profile that can be named, as it is shown.
type preset struct {
	name string
	// place is zero for one of the project's own; those that every project knows count from 1, in their own
	// order.
	place int64
	// write writes its members.
	write func(o *jsonObject)
}

// cursor is where the list goes on after the preset.
func (p *preset) cursor() store.Cursor { return store.Cursor{DueAt: p.place, ID: p.name} }

// presetOrder sorts a project's own by their names, and behind them what every project knows by place.
func presetOrder(a, b store.Cursor) int {
	return cmp.Or(cmp.Compare(a.DueAt, b.DueAt), strings.Compare(a.ID, b.ID))
}

// A presetKind is what the routes of one kind of preset differ in.
type presetKind struct {
	list byte
	// rows are what the project may name: its own, then what every project knows. The times of policies run from from; zero: they have
	// none.
	rows func(p *control.Presets, from int64) []preset
	// timed: from can be asked for.
	timed bool
	// other finds what is in no list; nil: there is no such thing.
	other func(ctx context.Context, presets Engine, project, name string, from int64) (preset, error)
}

// listPresets is GET of a kind. There are few: the list is read whole, and cut into pages here.
func (a *API) listPresets(k presetKind) handler {
	return func(ctx context.Context, c *gin.Context, who caller) error {
		q, err := a.listQuery(ctx, c, who)
		if err != nil {
			return err
		}
		from := k.from(q)
		limit, after := q.Page(k.list)
		q.Unknown()
		if err := q.Err(); err != nil {
			return err
		}
		presets, err := a.Engine.Presets(ctx, who.Project)
		if err != nil {
			return err
		}
		rows := k.rows(&presets, from)
		page, next := query.PageOf(q.Cursors, k.list, rows, limit, after, (*preset).cursor, presetOrder)
		o := jsonObject{[]byte(`{"data":[`)}
		for i := range page {
			o.element(i)
			page[i].write(&o)
			o.close()
		}
		a.answer(c, http.StatusOK, appendNext(o.b, next))
		return nil
	}
}

// from is when the times of policies run from; zero: they have none.
func (k *presetKind) from(q *query.Values) int64 {
	if !k.timed {
		return 0
	}
	return q.Instant("from")
}

// getPreset is GET of one, the project's own before what every project knows.
func (a *API) getPreset(k presetKind) handler {
	return func(ctx context.Context, c *gin.Context, who caller) error {
		name, err := pathName(c, "name")
		if err != nil {
			return err
		}
		q, err := parseQuery(c)
		if err != nil {
			return err
		}
		from := k.from(q)
		q.Unknown()
		if err := q.Err(); err != nil {
			return err
		}
		return a.showPreset(ctx, c, who, k, name, from)
	}
}

func (a *API) showPreset(ctx context.Context, c *gin.Context, who caller, k presetKind, name string, from int64) error {
	presets, err := a.Engine.Presets(ctx, who.Project)
	if err != nil {
		return err
	}
	var found preset
	rows := k.rows(&presets, from)
	switch i := slices.IndexFunc(rows, func(p preset) bool { return p.name == name }); {
	case i >= 0:
		found = rows[i]
	case k.other == nil:
		return store.ErrNotFound
	default:
		if found, err = k.other(ctx, a.Engine, who.Project, name, from); err != nil {
			return err
		}
	}
	o := jsonObject{[]byte("{")}
	found.write(&o)
	o.close()
	a.answer(c, http.StatusOK, o.b)
	return nil
}
