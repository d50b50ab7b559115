package ui

import (
	"strconv"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A lane's key may have any characters, so acts have it as a parameter of their address and not as a part of the path.
func (u *UI) laneActRoutes() []Route {
	return u.acts(
		act{"/lanes/pause", store.ScopeOperate, u.askPauseLane, u.pauseLane},
		act{"/lanes/resume", store.ScopeOperate, u.askResumeLane, u.resumeLane},
		act{"/lanes/limits", store.ScopeOperate, u.askLimitLane, u.limitLane},
	)
}

// laneKey is the key of the lane that an act is about, as it stands in the address.
func (r *request) laneKey() string { return r.url.Query().Get("key") }

// laneForm begins the form of an act on one lane. The texts are those of "lanes.NAME.*".
func (u *UI) laneForm(r *request, name string) (*form, *laneRow, error) {
	key := r.laneKey()
	if !isLaneKey(key) {
		return nil, nil, store.ErrNotFound
	}
	found, err := u.lanesByKey(r, []string{key})
	if err != nil {
		return nil, nil, err
	}
	if found[key] == nil {
		return nil, nil, store.ErrNotFound
	}
	f := &form{base: u.base(r, "lanes", "lanes."+name+".title"), Action: link("/lanes/"+name, "key", key), Back: r.back(Root + "/lanes")}
	f.Says, f.Submit = []string{f.T("lanes." + name + ".says")}, f.T("lanes."+name+".submit")
	row := f.laneRow(found[key])
	f.Facts = []fact{{Name: f.T("column.lane"), Value: key, Data: true}, {Name: f.T("lanes.open"), Value: f.N(row.Open), Data: true}}
	if row.EndpointFullID != "" {
		f.Facts = append(f.Facts, fact{Name: f.T("column.endpoint"), Value: row.EndpointFullID, Link: Root + "/endpoints/" + row.EndpointFullID, Data: true})
	}
	return f, row, nil
}

// laneActed goes back to where an act on the request's lane was asked for, and says that it was done.
func (u *UI) laneActed(r *request, name string, err error) (*answer, error) {
	if err != nil {
		return nil, err
	}
	return u.did(r, link("/lanes", "q", r.laneKey()), r.lang.text("lanes."+name+".done"))
}

func (u *UI) askPauseLane(r *request) (*form, error) {
	f, _, err := u.laneForm(r, "pause")
	if err != nil {
		return nil, err
	}
	f.Fields = f.pauseFields()
	return f, nil
}

func (u *UI) pauseLane(r *request) (*answer, error) {
	until, err := r.pauseEnd()
	if err != nil {
		return nil, err
	}
	_, err = u.Lanes.PauseLane(r.ctx, r.who.project, r.laneKey(), until, r.by())
	return u.laneActed(r, "pause", err)
}

func (u *UI) askResumeLane(r *request) (*form, error) {
	f, row, err := u.laneForm(r, "resume")
	if err != nil {
		return nil, err
	}
	for _, s := range row.Standings {
		if s.Code == dispatch.BlockLanePaused && s.Note != "" {
			f.Facts = append(f.Facts, fact{Name: f.T("endpoint.pause.reason"), Value: s.Note, Data: true})
		}
	}
	f.Fields = []field{f.reasonField()}
	return f, nil
}

func (u *UI) resumeLane(r *request) (*answer, error) {
	_, err := u.Lanes.PauseLane(r.ctx, r.who.project, r.laneKey(), 0, r.by())
	return u.laneActed(r, "resume", err)
}

func (u *UI) askLimitLane(r *request) (*form, error) {
	f, row, err := u.laneForm(r, "limits")
	if err != nil {
		return nil, err
	}
	if row.EndpointFullID != "" {
		f.Says = append(f.Says, f.T("lanes.limits.endpoint"))
	}
	limit := ""
	if row.Limit > 0 {
		limit = strconv.Itoa(row.Limit)
	}
	f.Fields = []field{
		{Name: "concurrency", Kind: lineField, Label: f.T("endpoint.field.concurrency"), Help: f.T("endpoint.field.concurrency.help"), Value: limit, Suggest: "32", Mono: true},
		{Name: "rate", Kind: lineField, Label: f.T("endpoint.field.rate"), Help: f.T("endpoint.field.rate.help"), Value: row.Rate.String(), Suggest: "50/s", Mono: true},
		f.reasonField(),
	}
	f.remember(map[string]string{"concurrency": limit, "rate": row.Rate.String()})
	return f, nil
}

// limitLane sets the bounds that differ from what the form has shown: a field that was emptied takes a bound away.
func (u *UI) limitLane(r *request) (*answer, error) {
	var (
		wrong store.InvalidError
		limit *int
		rate  *store.Rate
		err   error
	)
	if text := r.changed("concurrency"); text != nil {
		limit = new(int)
		if *text != "" {
			if *limit, err = strconv.Atoi(*text); err != nil || *limit < 1 {
				wrong.Fields = append(wrong.Fields, store.FieldError{Field: "concurrency", Message: r.lang.text("endpoint.field.concurrency.wrong")})
			}
		}
	}
	if text := r.changed("rate"); text != nil {
		rate = new(store.Rate)
		if *text != "" {
			if *rate, err = store.ParseRate(*text); err != nil {
				wrong.Fields = append(wrong.Fields, store.FieldError{Field: "rate", Message: err.Error()})
			}
		}
	}
	if len(wrong.Fields) > 0 {
		return nil, &wrong
	}
	_, err = u.Lanes.SetLane(r.ctx, r.who.project, r.laneKey(), limit, rate, r.by())
	return u.laneActed(r, "limits", err)
}
