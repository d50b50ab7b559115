package ui

import (
	"encoding/json"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (u *UI) scheduleActRoutes() []Route {
	const one = "/schedules/:id"
	return u.acts(
		act{"/schedules/new", store.ScopeOperate, u.askNewSchedule, u.newSchedule},
		act{one + "/edit", store.ScopeOperate, u.askEditSchedule, u.editSchedule},
		act{one + "/enable", store.ScopeOperate, u.askSchedule("enable"), u.enableSchedule("enable", true)},
		act{one + "/disable", store.ScopeOperate, u.askSchedule("disable"), u.enableSchedule("disable", false)},
		act{one + "/run", store.ScopeOperate, u.askSchedule("run"), u.runSchedule},
		act{one + "/delete", store.ScopeOperate, u.askSchedule("delete"), u.deleteSchedule},
	)
}

const (
	// exampleTemplate is what a new schedule begins with.
	exampleTemplate = `{
  "url": "https://shop.example/settlement",
  "topic": "settlement.daily",
  "payload": {"report": "daily"},
  "policy": "payment"
}`
	exampleCron = "30 2 * * *"
	// previewTimes is how many due times a preview shows, templateRows how high the field of a template is.
	previewTimes = 5
	templateRows = 12
)

// scheduleForm is the form of a schedule that is to be made, or that is there.
func (u *UI) scheduleForm(r *request, name string, s *store.Schedule) *form {
	f := &form{base: u.base(r, "schedules", "schedules."+name+".title"), Submit: r.lang.text("schedules." + name + ".submit")}
	f.Says = []string{f.T("schedules." + name + ".says")}
	f.PreviewSubmit = f.T("schedules.preview")
	f.Fields = []field{
		{Name: "name", Kind: lineField, Label: f.T("column.name"), Value: s.Name, Required: true, Help: f.T("schedules.name.help")},
		{Name: "cron", Kind: lineField, Label: f.T("schedules.cron"), Value: s.Cron, Required: true, Mono: true, Help: f.T("schedules.cron.help"), Suggest: exampleCron},
		{Name: "timezone", Kind: lineField, Label: f.T("frame.zone"), Value: s.Timezone, Mono: true, Help: f.T("schedules.timezone.help"), Suggest: "Asia/Shanghai"},
		{Name: "missed", Kind: choiceField, Label: f.T("schedules.missed"), Help: f.T("schedules.missed.help"), Options: []option{
			{Value: string(store.MissedOnce), Text: f.T("schedules.missed.once"), Chosen: s.Missed != store.MissedSkip},
			{Value: string(store.MissedSkip), Text: f.T("schedules.missed.skip"), Chosen: s.Missed == store.MissedSkip},
		}},
		{Name: "enabled", Kind: checkField, Label: f.T("schedules.enabled"), Checked: s.Enabled},
		{Name: "callback", Kind: textField, Label: f.T("schedules.template"), Value: string(s.Template), Required: true, Mono: true, Rows: templateRows, Help: f.T("schedules.template.help")},
		f.reasonField(),
	}
	return f
}

// scheduleChange is the schedule as the form has it.
func (u *UI) scheduleChange(r *request) (ch dispatch.ScheduleChange, err error) {
	name, cron, timezone, missed, enabled := r.value("name"), r.value("cron"), r.value("timezone"), r.value("missed"), r.form.Has("enabled")
	ch = dispatch.ScheduleChange{Name: &name, Cron: &cron, Timezone: &timezone, Missed: &missed, Enabled: &enabled, Template: []byte(strings.TrimSpace(r.text("callback")))}
	if !json.Valid(ch.Template) {
		return ch, invalid("callback", r.lang.text("form.json"))
	}
	return ch, nil
}

// previewSchedule shows the form with the times at which the schedule would be due.
func (u *UI) previewSchedule(r *request, ask func(*request) (*form, error)) (*answer, error) {
	cron, timezone := r.value("cron"), r.value("timezone")
	next, err := dispatch.NextTimes(cron, timezone, r.now, previewTimes)
	if err != nil {
		return nil, err
	}
	f, err := ask(r)
	if err != nil {
		return nil, err
	}
	own := timezone
	if own == "" {
		own = utc.name
	}
	says := []string{f.T("schedules.preview.says", "zone", r.zone.name)}
	for _, at := range next {
		line := f.Absolute(at) + " · " + f.relative(at)
		if own != r.zone.name {
			line = f.T("schedules.preview.own", "at", line, "own", ownTime(timezone, at), "zone", own)
		}
		says = append(says, line)
	}
	return preview(f, says...)
}

func (u *UI) askNewSchedule(r *request) (*form, error) {
	f := u.scheduleForm(r, "new", &store.Schedule{Cron: exampleCron, Timezone: r.zone.name, Missed: store.MissedOnce, Enabled: true, Template: exampleTemplate})
	f.Back = r.back(Root + "/schedules")
	return f, nil
}

func (u *UI) newSchedule(r *request) (*answer, error) {
	ch, err := u.scheduleChange(r)
	if err != nil {
		return nil, err
	}
	if r.value("preview") != "" {
		return u.previewSchedule(r, u.askNewSchedule)
	}
	s, err := u.ScheduleActs.CreateSchedule(r.ctx, r.who.project, ch, r.by())
	if err != nil {
		return nil, err
	}
	u.say(r, r.lang.text("schedules.new.done"))
	return redirect(Root + "/schedules/" + store.SchedulePrefix + s.ID)
}

// scheduleOf is the request's schedule.
func (u *UI) scheduleOf(r *request) (s store.Schedule, err error) {
	id, err := r.bareID(store.SchedulePrefix)
	if err != nil {
		return s, err
	}
	return u.Schedules.Schedule(r.ctx, r.who.project, id)
}

// schedulePath is the page of the request's schedule.
func schedulePath(r *request) string { return Root + "/schedules/" + r.params["id"] }

func (u *UI) askEditSchedule(r *request) (*form, error) {
	s, err := u.scheduleOf(r)
	if err != nil {
		return nil, err
	}
	s.Template = store.JSONText(indented(maskedTemplate(string(s.Template))))
	f := u.scheduleForm(r, "edit", &s)
	f.Back = r.back(schedulePath(r))
	return f, nil
}

func (u *UI) editSchedule(r *request) (*answer, error) {
	s, err := u.scheduleOf(r)
	if err != nil {
		return nil, err
	}
	ch, err := u.scheduleChange(r)
	if err != nil {
		return nil, err
	}
	typed := unmasked(string(ch.Template), string(s.Template))
	switch masked := stillMasked(typed); masked {
	case "":
	case "url":
		return nil, invalid("callback", r.lang.text("schedules.masked"))
	default:
		name := strings.TrimPrefix(masked, "headers.")
		return nil, invalid("callback", r.lang.text("schedules.masked.header", "name", name))
	}
	if ch.Template = []byte(typed); sameJSON(typed, string(s.Template)) {
		ch.Template = nil // the bytes of its payload stay as they are
	}
	if r.value("preview") != "" {
		return u.previewSchedule(r, u.askEditSchedule)
	}
	if _, err := u.ScheduleActs.PatchSchedule(r.ctx, r.who.project, s.ID, ch, r.by()); err != nil {
		return nil, err
	}
	return u.did(r, schedulePath(r), r.lang.text("schedules.edit.done"))
}

// askSchedule is the form of an act on one schedule.
func (u *UI) askSchedule(name string) func(r *request) (*form, error) {
	return func(r *request) (*form, error) {
		s, err := u.scheduleOf(r)
		if err != nil {
			return nil, err
		}
		f := &form{base: u.base(r, "schedules", "schedules."+name+".title"), Back: r.back(schedulePath(r)), Danger: name == "delete"}
		f.Says, f.Submit = []string{f.T("schedules." + name + ".says")}, f.T("schedules."+name+".submit")
		row := newScheduleRow(&s, r.now)
		f.Facts = []fact{
			{Name: f.T("column.name"), Value: s.Name, Data: true}, {Name: f.T("schedules.cron"), Value: s.Cron + " " + row.Zone, Data: true},
			{Name: f.T("schedules.next"), Value: f.Absolute(s.NextAt), Data: true},
		}
		f.Fields = []field{f.reasonField()}
		return f, nil
	}
}

func (u *UI) enableSchedule(name string, on bool) func(r *request) (*answer, error) {
	return func(r *request) (*answer, error) {
		id, err := r.bareID(store.SchedulePrefix)
		if err != nil {
			return nil, err
		}
		if _, err := u.ScheduleActs.PatchSchedule(r.ctx, r.who.project, id, dispatch.ScheduleChange{Enabled: &on}, r.by()); err != nil {
			return nil, err
		}
		return u.did(r, schedulePath(r), r.lang.text("schedules."+name+".done"))
	}
}

func (u *UI) runSchedule(r *request) (*answer, error) {
	id, err := r.bareID(store.SchedulePrefix)
	if err != nil {
		return nil, err
	}
	made, err := u.ScheduleActs.RunSchedule(r.ctx, r.who.project, id, r.by())
	if err != nil {
		return nil, err
	}
	u.say(r, r.lang.text("schedules.run.done"))
	return redirect(Root + "/callbacks/" + store.CallbackPrefix + made.ID)
}

func (u *UI) deleteSchedule(r *request) (*answer, error) {
	id, err := r.bareID(store.SchedulePrefix)
	if err != nil {
		return nil, err
	}
	if err := u.ScheduleActs.DeleteSchedule(r.ctx, r.who.project, id, r.by()); err != nil {
		return nil, err
	}
	u.say(r, r.lang.text("schedules.delete.done"))
	return redirect(Root + "/schedules")
}
