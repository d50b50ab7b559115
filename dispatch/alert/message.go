package alert

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sink"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// maxListed is how many instances a message names.
const maxListed = 10

// words are the texts of messages in one language.
type words struct {
	test string
	// kinds are sentences about a value and its threshold; %[1]s is the value, %[2]s the threshold, %[3]s the
	// window.
	kinds map[store.AlertKind]string
	// noCallback is the sentence about a schedule whose last run created no callback.
	noCallback string
	// noList, unbalanced and notRun are the sentences about a reconciliation without missing callbacks.
	noList, unbalanced, notRun string
	// instance and resolved are lines about one instance: %[1]s is its name, %[2]s the sentence or how long
	// it fired. more is the number of instances that are left out.
	instance, resolved, more string
	// The rest are lines and the title of the daily summary.
	counts, fired, still, quiet, summary string
}

var english = words{
	test: "This is a test. The alert works, and messages arrive here.",
	kinds: map[store.AlertKind]string{
		store.AlertOldestDue:       "The oldest callback is overdue by %[1]s (threshold %[2]s).",
		store.AlertDeadRate:        "%[1]s callbacks became dead in one minute (threshold %[2]s).",
		store.AlertEndpointSuccess: "%[1]s of the attempts succeeded in the last %[3]s (threshold %[2]s).",
		store.AlertBreakerOpen:     "The circuit breaker has been open for %[1]s (threshold %[2]s).",
		store.AlertPollUnresolved:  "Within %[3]s %[1]s status polls ended without a result (limit %[2]s).",
		store.AlertScheduleLate:    "The schedule is late by %[1]s (threshold %[2]s).",
		store.AlertReconcile:       "Daily reconciliation: %[1]s of the expected callbacks are missing.",
		store.AlertRelayLag: "The outbox table is delayed by %[1]s (threshold %[2]s). " +
			"Check that its relay runs; the page Relay says why.",
		store.AlertRelayRefused: "Refused rows of the outbox table: %[1]s (limit %[2]s). " +
			"The page Relay says why, and retries them.",
	},
	noList:     "Daily reconciliation: the list of expected callbacks was not submitted.",
	unbalanced: "Daily reconciliation: the counts do not balance; callbacks are stored incompletely.",
	notRun:     "Daily reconciliation: the run failed or is late.",
	noCallback: "The last run created no callback.",
	instance:   "%[1]s: %[2]s", resolved: "Resolved after %[2]s: %[1]s", more: "… and %d more",
	counts: "Last 24 hours: %d accepted, %d delivered, %d dead; %d open now.",
	fired:  "Fired: %[1]s at %[2]s, for %[3]s", still: "Still firing: %[1]s since %[2]s",
	quiet: "No alert fired.", summary: "Daily summary of project %s",
}

var chinese = words{
	test: "这是一条测试消息：告警可用，消息会发送到这里。",
	kinds: map[store.AlertKind]string{
		store.AlertOldestDue:       "最早到期的回调已逾期 %[1]s（阈值 %[2]s）。",
		store.AlertDeadRate:        "一分钟内新增死信 %[1]s 条（阈值 %[2]s）。",
		store.AlertEndpointSuccess: "最近 %[3]s 投递成功率为 %[1]s（阈值 %[2]s）。",
		store.AlertBreakerOpen:     "熔断已持续 %[1]s（阈值 %[2]s）。",
		store.AlertPollUnresolved:  "%[3]s 内有 %[1]s 个状态轮询未获最终结果（阈值 %[2]s）。",
		store.AlertScheduleLate:    "定时任务已延迟 %[1]s（阈值 %[2]s）。",
		store.AlertReconcile:       "每日对账异常：应有回调中缺少 %[1]s 条。",
		store.AlertRelayLag:        "发件箱表已延迟 %[1]s（阈值 %[2]s）。请确认其中继在运行；原因见“发件箱中继”页面。",
		store.AlertRelayRefused:    "发件箱表有 %[1]s 条被拒记录（上限 %[2]s）。请在“发件箱中继”页面查看原因并重试。",
	},
	noList:     "每日对账异常：未收到应有回调的清单。",
	unbalanced: "每日对账异常：账目不平，存储的回调不完整。",
	notRun:     "每日对账异常：对账失败或未按时完成。",
	noCallback: "最近一次运行未生成回调。",
	instance:   "%[1]s：%[2]s", resolved: "已恢复（持续 %[2]s）：%[1]s", more: "……另有 %d 项",
	counts: "最近 24 小时：受理 %d，已送达 %d，死信 %d；当前未完成 %d。",
	fired:  "曾触发：%[1]s，%[2]s 起，持续 %[3]s", still: "仍在触发：%[1]s，自 %[2]s",
	quiet: "没有告警触发。", summary: "项目 %s 每日汇总",
}

func wordsOf(c *sink.Config) *words {
	if c.Language == sink.Chinese {
		return &chinese
	}
	return &english
}

// zone returns the time zone of an alert's times.
func zone(a *store.Alert) *time.Location {
	if z, err := schedule.ParseZone(a.DigestZone); err == nil {
		return z
	}
	return time.UTC
}

func at(a *store.Alert, ms int64) time.Time { return clock.TimeOf(ms).In(zone(a)) }

// sentence returns what a firing of an alert says.
func (w *words) sentence(a *store.Alert, value float64) string {
	r, _ := RuleOf(a.When.Kind)
	switch kind := a.When.Kind; {
	case kind == store.AlertScheduleLate && value == neverRan:
		return w.noCallback
	case kind == store.AlertReconcile && value == noList:
		return w.noList
	case kind == store.AlertReconcile && value == unbalanced:
		return w.unbalanced
	case kind == store.AlertReconcile && value == notRun:
		return w.notRun
	}
	threshold, measured := float64(a.When.Above), shown(r.Unit, value)
	if a.When.Kind == store.AlertRelayRefused && value >= store.RelayCountLimit {
		measured = shown(r.Unit, store.RelayCountLimit-1) + "+"
	}
	if r.Unit == Percent {
		threshold = a.When.Below
	}
	return fmt.Sprintf(w.kinds[a.When.Kind], measured, shown(r.Unit, threshold), span(a.When.Window))
}

// shown returns a value as text, in its unit.
func shown(u Unit, value float64) string {
	switch u {
	case Duration:
		return span(time.Duration(value) * time.Millisecond)
	case Percent:
		return fmt.Sprintf("%.4g%%", value)
	}
	return fmt.Sprintf("%.0f", value)
}

// span returns a duration in whole seconds.
func span(d time.Duration) string { return schedule.FormatDuration(d.Round(time.Second)) }

// label returns the name of what a firing was found on, or that of its alert.
func label(a *store.Alert, r *store.AlertFiring) string {
	if r.Name != "" {
		return r.Name
	}
	return a.Name
}

// changeMessage tells what began and what ended to fire since the last message.
func changeMessage(a *store.Alert, step *advance, link string, now int64) text {
	return func(c *sink.Config) sink.Message {
		w := wordsOf(c)
		m := sink.Message{State: sink.Firing, Title: a.Name, Link: link, At: at(a, now)}
		if len(step.fired) == 0 {
			m.State = sink.Resolved
		}
		for i := range step.fired {
			r := &step.fired[i]
			line := w.sentence(a, r.Value)
			if r.Name != "" {
				line = fmt.Sprintf(w.instance, r.Name, line)
			}
			m.Lines = append(m.Lines, line)
		}
		m.Lines = w.cut(m.Lines)
		var ended []string
		for i := range step.resolved {
			r := &step.resolved[i]
			ended = append(ended, fmt.Sprintf(w.resolved, label(a, r), lasted(r, now)))
		}
		m.Lines = append(m.Lines, w.cut(ended)...)
		return m
	}
}

// lasted returns how long a firing lasted, or has lasted so far.
func lasted(r *store.AlertFiring, now int64) string {
	end := r.ResolvedAt
	if end == 0 {
		end = now
	}
	return span(time.Duration(end-r.FiredAt) * time.Millisecond)
}

// cut leaves the first maxListed lines, and the number of the others.
func (w *words) cut(lines []string) []string {
	if len(lines) <= maxListed {
		return lines
	}
	return append(lines[:maxListed:maxListed], fmt.Sprintf(w.more, len(lines)-maxListed))
}

const (
	day = 24 * time.Hour
	// maxSummary bounds the firings that a daily summary reads.
	maxSummary = 500
	// countedAfter is how long after the end of a quarter its counts are in SQL.
	countedAfter = 10 * time.Second
)

// summaryDay returns the 24 hours of the daily summary that is due at a time, in whole quarters, so that each
// quarter is in one summary. Those of a summary that is late by a day or more end now.
func summaryDay(due, now int64) (from, to int64) {
	if now-due >= day.Milliseconds() {
		due = now
	}
	to = store.Quarter.Begin(due)
	return to - day.Milliseconds(), to
}

// digest returns the draft of the daily summary of an alert's project.
func (as *Alerts) digest(ctx context.Context, a *store.Alert, now int64) (*store.Draft, error) {
	from, to := summaryDay(a.NextDigest, now)
	hours, err := as.o.Store.Activity(ctx, a.Project, 0, store.Quarter, from, to)
	if err != nil {
		return nil, err
	}
	var sum store.Activity
	for i := range hours {
		sum.Add(&hours[i])
	}
	counts, err := as.o.Store.Counts(ctx, a.Project)
	if err != nil {
		return nil, err
	}
	fired, err := as.o.Store.FiringsSince(ctx, a.Project, from, maxSummary)
	if err != nil {
		return nil, err
	}
	alerts, err := as.o.Store.Alerts(ctx, a.Project, store.AlertFilter{Limit: store.MaxAlerts})
	if err != nil {
		return nil, err
	}
	names := make(map[string]string)
	for i := range alerts {
		names[alerts[i].ID] = alerts[i].Name
	}
	return as.draft(ctx, a, func(c *sink.Config) sink.Message {
		w := wordsOf(c)
		m := sink.Message{
			State: sink.Digest, Title: fmt.Sprintf(w.summary, a.Project), Link: as.page("/ui"),
			At: at(a, now),
			Lines: []string{fmt.Sprintf(w.counts, sum.Accepted, sum.Succeeded, sum.Dead,
				counts.States[store.Scheduled])},
		}
		m.Lines = append(m.Lines, w.summaries(a, fired, names, now)...)
		return m
	})
}

// summaries are the lines about firings: those that still fire, then the others.
func (w *words) summaries(a *store.Alert, fired []store.AlertFiring, names map[string]string,
	now int64) []string {
	if len(fired) == 0 {
		return []string{w.quiet}
	}
	var still, ended []string
	for i := range fired {
		r := &fired[i]
		name := names[r.AlertID]
		if r.Name != "" {
			name = fmt.Sprintf(w.instance, name, r.Name)
		}
		since := at(a, r.FiredAt).Format("01-02 15:04")
		if r.ResolvedAt == 0 {
			still = append(still, fmt.Sprintf(w.still, name, since))
		} else {
			ended = append(ended, fmt.Sprintf(w.fired, name, since, lasted(r, now)))
		}
	}
	return append(w.cut(still), w.cut(ended)...)
}

// nextDigest returns the next time of the daily summary after now; zero: there is none.
func nextDigest(a *store.Alert, now int64) int64 {
	clockTime, err := time.Parse("15:04", a.DigestAt)
	if a.DigestAt == "" || err != nil || !a.Enabled {
		return 0
	}
	spec, err := schedule.ParseSpec(fmt.Sprintf("%d %d * * *", clockTime.Minute(), clockTime.Hour()),
		a.DigestZone)
	if err != nil {
		return 0
	}
	return spec.Next(clock.TimeOf(now)).UnixMilli()
}

// Page returns the path of the page of the admin UI that shows the cause of firings of one alert. A single
// endpoint, lane, schedule or outbox table has its own page, and several have a list.
func Page(w *store.AlertWhen, firings []store.AlertFiring) string {
	own := func(page, list string) string {
		if len(firings) != 1 || firings[0].Instance == "" {
			return list
		}
		return page + url.QueryEscape(firings[0].Instance)
	}
	switch w.Kind {
	case store.AlertOldestDue:
		page := "/ui/callbacks?overdue=true&order=due"
		if w.Lane != "" {
			page += "&lane=" + url.QueryEscape(w.Lane)
		}
		return page
	case store.AlertDeadRate:
		return "/ui/dead"
	case store.AlertEndpointSuccess:
		return own("/ui/endpoints/"+store.EndpointPrefix, "/ui/endpoints?failing=true")
	case store.AlertBreakerOpen:
		return own("/ui/lane?key=", "/ui/lanes?sort=backlog&why=breaker_open")
	case store.AlertPollUnresolved:
		return "/ui/polls?state=dead&reason=unresolved"
	case store.AlertScheduleLate:
		return own("/ui/schedules/"+store.SchedulePrefix, "/ui/schedules?enabled=late")
	case store.AlertReconcile:
		if len(firings) == 1 {
			if _, err := time.Parse(time.DateOnly, firings[0].Instance); err == nil {
				return "/ui/books/days/" + firings[0].Instance
			}
		}
		return "/ui/books"
	case store.AlertRelayLag, store.AlertRelayRefused:
		return own("/ui/relay/", "/ui/relay")
	}
	return "/ui/alerts"
}

// link returns the page about firings of an alert; empty without a public URL.
func (as *Alerts) link(a *store.Alert, firings []store.AlertFiring) string {
	return as.page(Page(&a.When, firings))
}

func (as *Alerts) page(path string) string {
	if as.o.PublicURL == "" {
		return ""
	}
	return as.o.PublicURL + path
}
