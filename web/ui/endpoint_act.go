package ui

import (
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (u *UI) endpointActRoutes() []Route {
	const one = "/endpoints/:id"
	return append(u.acts(
		act{"/endpoints/new", store.ScopeOperate, u.askCreateEndpoint, u.createEndpoint},
		act{one + "/edit", store.ScopeOperate, u.askEditEndpoint, u.editEndpoint},
		act{one + "/pause", store.ScopeOperate, u.askPauseEndpoint, u.pauseEndpoint},
		act{one + "/resume", store.ScopeOperate, u.askResumeEndpoint, u.resumeEndpoint},
		act{one + "/enable", store.ScopeOperate, u.askEnableEndpoint, u.enableEndpoint},
		act{one + "/disable", store.ScopeOperate, u.askDisableEndpoint, u.disableEndpoint},
		act{one + "/delete", store.ScopeOperate, u.askDeleteEndpoint, u.deleteEndpoint},
		act{one + "/rotate_secret", store.ScopeAdmin, u.askRotateSecret, u.rotateSecret},
		act{one + "/secret", store.ScopeAdmin, u.askRevealSecret, u.revealSecret},
	), post(one+"/test", store.ScopeOperate, u.testEndpoint))
}

// endpointForm begins the form of an act on one endpoint. The texts are those of "endpoint.NAME.*".
func (u *UI) endpointForm(r *request, name string) (*form, *endpointRow, error) {
	id, err := r.bareID(store.EndpointPrefix)
	if err != nil {
		return nil, nil, err
	}
	ep, err := u.Store.Endpoint(r.ctx, r.who.Project, id)
	if err != nil {
		return nil, nil, err
	}
	f := &form{base: u.base(r, "endpoints", "endpoint."+name+".title"), Back: r.back(endpointPath(r))}
	f.Says = []string{f.T("endpoint." + name + ".says")}
	f.Submit = f.T("endpoint." + name + ".submit")
	row := newEndpointRow(ep)
	f.Facts = []fact{{Name: f.T("column.endpoint"), Value: row.Label, Data: true}, {Name: f.T("endpoint.address"), Value: row.Address, Data: true}}
	return f, row, nil
}

// endpointPath is the page of the request's endpoint.
func endpointPath(r *request) string { return Root + "/endpoints/" + r.params["id"] }

// endpointActed says that something was done to the request's endpoint, and goes back to where that was asked for. The texts are those of
// "endpoint.NAME.done".
func (u *UI) endpointActed(r *request, name string, err error) (*answer, error) {
	if err != nil {
		return nil, err
	}
	return u.did(r, endpointPath(r), r.lang.text("endpoint."+name+".done"))
}

// pauseFields ask until when something is to be held.
func (f *form) pauseFields() []field {
	return []field{
		{Name: "for", Kind: lineField, Label: f.T("endpoint.pause.for"), Help: f.T("endpoint.pause.for.help"), Suggest: "30m", Mono: true},
		{Name: "until", Kind: "datetime-local", Label: f.T("endpoint.pause.until"), Help: f.T("form.zone", "zone", f.zone.name)},
		f.reasonField(),
	}
}

func (u *UI) askPauseEndpoint(r *request) (*form, error) {
	f, _, err := u.endpointForm(r, "pause")
	if err != nil {
		return nil, err
	}
	f.Fields = f.pauseFields()
	return f, nil
}

func (u *UI) pauseEndpoint(r *request) (*answer, error) {
	id, err := r.bareID(store.EndpointPrefix)
	if err != nil {
		return nil, err
	}
	until, err := r.pauseEnd()
	if err != nil {
		return nil, err
	}
	_, err = u.Engine.PauseEndpoint(r.ctx, r.who.Project, id, until, r.by())
	return u.endpointActed(r, "pause", err)
}

func (u *UI) askResumeEndpoint(r *request) (*form, error) {
	f, row, err := u.endpointForm(r, "resume")
	if err != nil {
		return nil, err
	}
	if row.PausedUntil > r.now && row.PauseReason != "" {
		f.Facts = append(f.Facts, fact{Name: f.T("endpoint.pause.reason"), Value: row.PauseReason, Data: true})
	}
	if err := u.saysBacklog(r, f, row, "endpoint.resume.backlog"); err != nil {
		return nil, err
	}
	f.Fields = []field{f.reasonField()}
	return f, nil
}

// saysBacklog says how many callbacks the endpoint has open, as far as its lane is known.
func (u *UI) saysBacklog(r *request, f *form, row *endpointRow, key string) error {
	if row.LaneID == 0 {
		return nil
	}
	lanes, err := u.lanesByKey(r, []string{row.LaneKey()})
	if err != nil {
		return err
	}
	if lane := lanes[row.LaneKey()]; lane != nil {
		f.Says = append(f.Says, f.T(key, "n", lane.Open))
	}
	return nil
}

func (u *UI) resumeEndpoint(r *request) (*answer, error) {
	id, err := r.bareID(store.EndpointPrefix)
	if err != nil {
		return nil, err
	}
	_, err = u.Engine.PauseEndpoint(r.ctx, r.who.Project, id, 0, r.by())
	return u.endpointActed(r, "resume", err)
}

func (u *UI) askEnableEndpoint(r *request) (*form, error) {
	f, row, err := u.endpointForm(r, "enable")
	if err != nil {
		return nil, err
	}
	if row.DisabledReason != "" {
		f.Facts = append(f.Facts, fact{Name: f.T("endpoint.disabled"), Value: f.Or("endpoint.disabled.", row.DisabledReason), Data: !f.Has("endpoint.disabled." + row.DisabledReason)})
	}
	if err := u.saysBacklog(r, f, row, "endpoint.resume.backlog"); err != nil {
		return nil, err
	}
	f.Fields = []field{f.reasonField()}
	return f, nil
}

func (u *UI) enableEndpoint(r *request) (*answer, error) { return u.switchEndpoint(r, "enable", true) }

func (u *UI) askDisableEndpoint(r *request) (*form, error) {
	f, _, err := u.endpointForm(r, "disable")
	if err != nil {
		return nil, err
	}
	f.Fields = []field{f.reasonField()}
	return f, nil
}

func (u *UI) disableEndpoint(r *request) (*answer, error) {
	return u.switchEndpoint(r, "disable", false)
}

func (u *UI) switchEndpoint(r *request, name string, on bool) (*answer, error) {
	id, err := r.bareID(store.EndpointPrefix)
	if err != nil {
		return nil, err
	}
	_, err = u.Engine.PatchEndpoint(r.ctx, r.who.Project, id, dispatch.EndpointChange{Enabled: &on}, r.by())
	return u.endpointActed(r, name, err)
}

func (u *UI) askDeleteEndpoint(r *request) (*form, error) {
	f, row, err := u.endpointForm(r, "delete")
	if err != nil {
		return nil, err
	}
	if err := u.saysBacklog(r, f, row, "endpoint.delete.backlog"); err != nil {
		return nil, err
	}
	f.Danger = true
	f.Fields = []field{f.reasonField()}
	return f, nil
}

// deleteEndpoint goes to the list: there is no page of the endpoint to go back to.
func (u *UI) deleteEndpoint(r *request) (*answer, error) {
	id, err := r.bareID(store.EndpointPrefix)
	if err != nil {
		return nil, err
	}
	if err := u.Engine.DeleteEndpoint(r.ctx, r.who.Project, id, r.by()); err != nil {
		return nil, err
	}
	u.say(r, r.lang.text("endpoint.delete.done"))
	return redirect(Root + "/endpoints")
}

// testEndpoint sends a test, and goes to its callback, where one can watch what becomes of it.
func (u *UI) testEndpoint(r *request) (*answer, error) {
	id, err := r.bareID(store.EndpointPrefix)
	if err != nil {
		return nil, err
	}
	// To the engine an endpoint that is not there is a wrong field of a callback; here it is what the path names.
	if _, err := u.Store.Endpoint(r.ctx, r.who.Project, id); err != nil {
		return nil, err
	}
	c, err := u.Engine.TestEndpoint(r.ctx, r.who.Project, id, r.by())
	if err != nil {
		return nil, err
	}
	u.say(r, r.lang.text("endpoint.test.done"))
	return redirect(Root + "/callbacks/" + store.CallbackPrefix + c.ID)
}

// secretPage shows a signing secret, in the answer to the form that asked for it and nowhere else.
type secretPage struct {
	base
	FullID string
	// Say is what was done.
	Say    string
	Secret *dispatch.ShownSecret
	// Until is when the secret before it ceases to sign beside it; zero: there is none that does.
	Until int64
}

// showSecret answers with a secret. The texts are those of "endpoint.NAME.*".
func (u *UI) showSecret(r *request, full, name string, s *dispatch.ShownSecret, until int64) (*answer, error) {
	p := &secretPage{base: u.base(r, "endpoints", "endpoint.secret.title"), FullID: full, Say: r.lang.text("endpoint." + name + ".done"), Secret: s}
	if until > r.now {
		p.Until = until
	}
	return show("endpoint_secret", p)
}

func (u *UI) askRevealSecret(r *request) (*form, error) {
	f, _, err := u.endpointForm(r, "secret")
	if err != nil {
		return nil, err
	}
	f.Fields = []field{f.reasonField()}
	return f, nil
}

func (u *UI) revealSecret(r *request) (*answer, error) {
	id, err := r.bareID(store.EndpointPrefix)
	if err != nil {
		return nil, err
	}
	s, err := u.Engine.RevealSecret(r.ctx, r.who.Project, dispatch.SecretQuery{Endpoint: id}, r.by())
	if err != nil {
		return nil, err
	}
	return u.showSecret(r, store.EndpointPrefix+id, "secret", &s, 0)
}

func (u *UI) askRotateSecret(r *request) (*form, error) {
	f, _, err := u.endpointForm(r, "rotate")
	if err != nil {
		return nil, err
	}
	f.Fields = []field{
		{Name: "overlap", Kind: lineField, Label: f.T("endpoint.rotate.overlap"), Help: f.T("endpoint.rotate.overlap.help"), Suggest: "24h", Mono: true},
		{Name: "secret", Kind: textField, Label: f.T("endpoint.field.secret"), Help: f.T("endpoint.field.secret.help"), Mono: true, Rows: 3, Secret: true},
		{Name: "label", Kind: lineField, Label: f.T("endpoint.field.secret_label"), Help: f.T("endpoint.field.secret_label.help"), Mono: true},
		f.reasonField(),
	}
	return f, nil
}

func (u *UI) rotateSecret(r *request) (*answer, error) {
	id, err := r.bareID(store.EndpointPrefix)
	if err != nil {
		return nil, err
	}
	q := dispatch.Rotation{Secret: strings.TrimSpace(r.text("secret")), Label: r.value("label"), Reason: r.value("reason")}
	if text := r.value("overlap"); text != "" {
		d, err := schedule.ParseDuration(text)
		if err != nil {
			return nil, invalid("overlap", r.lang.text("form.duration"))
		}
		q.Overlap = &d
	}
	s, until, err := u.Engine.RotateSecret(r.ctx, r.who.Project, dispatch.SecretQuery{Endpoint: id}, q, r.by())
	if err != nil {
		return nil, err
	}
	return u.showSecret(r, store.EndpointPrefix+id, "rotate", &s, until)
}
