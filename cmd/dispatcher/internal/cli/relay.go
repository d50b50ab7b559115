package cli

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
)

// RelayCommands are the commands for outbox tables that talk to a server or need none.
type RelayCommands struct {
	Status  relayStatus  `cmd:"" help:"List outbox tables with their relays, or show one."`
	Refused relayRefused `cmd:"" help:"List the rows of an outbox table that were refused, newest first."`
	Retry   relayRetry   `cmd:"" help:"Submit refused rows again, after the cause is fixed."`
	Drop    relayDrop    `cmd:"" help:"Delete refused rows."`
	Replay  relayReplay  `cmd:"" help:"Submit kept rows again, after a restore of the dispatcher's database."`
	Cancel  relayCancel  `cmd:"" help:"End the open retry, drop or replay of an outbox table."`
	Forget  relayForget  `cmd:"" help:"Forget an outbox table that no relay reads any more. Its rows stay."`
	DDL     relayDDL     `cmd:"" name:"ddl" help:"Print the SQL that creates an outbox table."`
}

// relayArg is the argument that names an outbox table.
type relayArg struct {
	Source string `arg:"" help:"Name of the outbox table in the settings of its relay."`
}

// path is the API path of the source.
func (a *relayArg) path() string { return "/v1/relay/" + url.PathEscape(a.Source) }

// asked completes a request for the source.
func (a *relayArg) asked(r request) request {
	return r.onMissing(fmt.Sprintf("no relay of this project has reported an outbox table %q; "+
		"\"dispatcher relay status\" lists them", a.Source))
}

// relayStatus lists sources, or shows one.
type relayStatus struct {
	Source string `arg:"" optional:"" help:"Name of the outbox table. Default: list all."`
	answerFlags
}

// Run prints the sources.
func (cmd *relayStatus) Run(c *session) error {
	if cmd.Source != "" {
		arg := relayArg{cmd.Source}
		return printResponse(c, arg.asked(get(arg.path())), func(s *client.RelaySource) { showRelay(c, s) })
	}
	return printResponse(c, get("/v1/relay"), func(all *client.Page[client.RelaySource]) {
		if len(all.Data) == 0 {
			c.printf("no relay has reported an outbox table\n")
			return
		}
		console.ShowTable(c.Console, all.Data, "source, relay, lag, waiting, refused, rows/s, error",
			func(s *client.RelaySource) []any {
				return []any{
					s.Name, relayHolder(c, s), relayLag(s), counted(s.Waiting), counted(s.RefusedRows),
					fmt.Sprintf("%.1f", s.RowsPerSecond), console.Short(s.Error, console.Widest),
				}
			})
	})
}

// showRelay prints one source.
func showRelay(c *session, s *client.RelaySource) {
	act := ""
	if s.Act != nil {
		act = fmt.Sprintf("%s, by %s, %s", actSentence(s.Act), s.Act.RequestedBy,
			ago(s.Act.RequestedAt, time.Now()))
	}
	c.Lines(10, "source", s.Name, "table", s.Origin, "relay", relayHolder(c, s), "reported",
		agoOr(s.ReportedAt, time.Now(), "never"), "lag", relayLag(s), "waiting", counted(s.Waiting),
		"refused", counted(s.RefusedRows), "rows/s", fmt.Sprintf("%.1f", s.RowsPerSecond),
		"error", c.Paint(s.Error, console.Red), "last act", act)
}

// relayHolder formats who reads a source.
func relayHolder(c *session, s *client.RelaySource) string {
	if s.Holder == "" {
		return c.Paint("none", console.Red)
	}
	return console.Short(s.Holder, 40)
}

func relayLag(s *client.RelaySource) string {
	return console.Brief(time.Duration(s.LagMs) * time.Millisecond)
}

// countLimit is where relays stop counting rows.
const countLimit = 10_001

// counted formats a count of rows.
func counted(n int) string {
	if n >= countLimit {
		return fmt.Sprintf("over %d", countLimit-1)
	}
	return fmt.Sprint(n)
}

// relayRefused lists refused rows.
type relayRefused struct {
	relayArg
	answerFlags
}

// Run prints the rows.
func (cmd *relayRefused) Run(c *session) error {
	return printResponse(c, cmd.asked(get(cmd.path())), func(s *client.RelaySource) {
		if len(s.Refusals) == 0 {
			c.printf("no row is refused\n")
			return
		}
		now := time.Now()
		console.ShowTable(c.Console, s.Refusals, "id, kind, code, refused, problem",
			func(r *client.RelayRefusal) []any {
				return []any{
					r.ID, console.Short(r.Kind, 16), console.Short(r.Code, 32), ago(r.RefusedAt, now),
					console.Short(r.Problem, 2*console.Widest),
				}
			})
		if s.RefusedRows > len(s.Refusals) {
			c.printf("\nthe newest %d of %s; the refused table has all\n", len(s.Refusals),
				counted(s.RefusedRows))
		}
	})
}

// actFlags are the flags of a command that asks a relay for an act.
type actFlags struct {
	relayArg
	NoWait bool `help:"Do not wait until the relay has finished."`
	changeFlags
}

// run asks for the act and, without --no-wait, waits for its end.
func (f *actFlags) run(c *session, action string, cmd any) error {
	var s client.RelaySource
	answer, err := c.call(f.asked(post(f.path()+"/"+action, cmd)), &s)
	switch {
	case err != nil:
		return err
	case !f.NoWait && s.Act != nil:
		return awaitAct(c, &f.relayArg, s.Act.ID)
	case c.json:
		return c.PrintJSON(answer)
	}
	c.printf("the relay is asked (see \"dispatcher relay status %s\")\n", console.Printable(f.Source))
	return nil
}

// relayRetry submits refused rows again.
type relayRetry struct {
	ID   string `in:"id" name:"id" placeholder:"ID" help:"Only the rows with this id."`
	Code string `in:"code" placeholder:"CODE" help:"Only the rows with this code, such as unknown_kind."`
	actFlags
}

// Help is the text below the summary of relay retry --help.
func (*relayRetry) Help() string {
	return "The relay submits the rows as if they were inserted now, so also those that were too old. " +
		"Accepted rows leave the refused table; the others stay with their new code. Without --id and " +
		"--code it takes all."
}

// Run asks for the retry.
func (cmd *relayRetry) Run(c *session) error { return cmd.run(c, "retry", cmd) }

// relayDrop deletes refused rows.
type relayDrop struct {
	ID   string `in:"id" name:"id" xor:"all" placeholder:"ID" help:"The rows with this id."`
	Code string `in:"code" xor:"all-code" placeholder:"CODE" help:"The rows with this code."`
	All  bool   `in:"all" xor:"all,all-code" help:"Every refused row."`
	actFlags
}

// Run asks for the deletion.
func (cmd *relayDrop) Run(c *session) error {
	if cmd.ID == "" && cmd.Code == "" && !cmd.All {
		return console.Wrong("give --id, --code, or --all")
	}
	return cmd.run(c, "drop", cmd)
}

// relayReplay submits kept rows again.
type relayReplay struct {
	Since  string `in:"since" required:"" placeholder:"TIME" help:"The time that the database was restored to, RFC 3339."`
	DryRun bool   `in:"dry_run" help:"Only count the rows."`
	Rate   int    `in:"rate" placeholder:"N" help:"Rows per second. Default: 500."`
	actFlags
}

// Help is the text below the summary of relay replay --help.
func (*relayReplay) Help() string {
	return "A source with the setting keep has the rows that it removed. The relay submits those that were " +
		"removed since five minutes before --since. Rows that the dispatcher still has are replays and " +
		"create nothing."
}

// Run asks for the replay.
func (cmd *relayReplay) Run(c *session) error { return cmd.run(c, "replay", cmd) }

// relayCancel ends the open act of a source.
type relayCancel struct {
	relayArg
	changeFlags
}

// Help is the text below the summary of relay cancel --help.
func (*relayCancel) Help() string {
	return "The relay stops within seconds. What it has done stays. An act that has ended stays as it is."
}

// Run ends the act.
func (cmd *relayCancel) Run(c *session) error {
	return printResponse(c, cmd.asked(post(cmd.path()+"/cancel", cmd)), func(s *client.RelaySource) {
		if s.Act == nil {
			c.printf("%s has no act\n", s.Name)
			return
		}
		c.printf("%s  %s\n", s.Name, actSentence(s.Act))
	})
}

// relayForget forgets a source.
type relayForget struct {
	relayArg
	reasonFlag
	serverFlags
}

// Run forgets the source.
func (cmd *relayForget) Run(c *session) error {
	r := cmd.asked(request{method: http.MethodDelete, path: cmd.path(), in: cmd})
	return c.done(r, "%s is forgotten; its rows stay", console.Printable(cmd.Source))
}

// relayDDL prints the SQL of an outbox table.
type relayDDL struct {
	Dialect string `enum:"postgres,mysql" required:"" placeholder:"postgres|mysql" help:"Database of the table: postgres, or mysql for MySQL and MariaDB."`
	Table   string `default:"dispatcher_outbox" placeholder:"NAME" help:"Name of the table, perhaps with its schema or database. Default: dispatcher_outbox."`
	Keep    bool   `help:"Add the table of removed rows, for a source with the setting keep."`
	Grant   string `placeholder:"USER" help:"Give this user the rights that a relay needs; for MySQL perhaps USER@HOST."`
}

// Help is the text below the summary of relay ddl --help.
func (*relayDDL) Help() string {
	return "Pipe it to psql or mysql. Tables that exist stay as they are. The application needs the right " +
		"INSERT on the first table."
}

// Run prints the statements.
func (cmd *relayDDL) Run(c *console.Console) error {
	text, err := source.DDL(source.Dialect(cmd.Dialect), source.DDLOptions{
		Table: cmd.Table, Keep: cmd.Keep, Grant: cmd.Grant,
	})
	if err != nil {
		return console.Wrong("%s", err)
	}
	_, err = fmt.Fprint(c.Out, text)
	return err
}
