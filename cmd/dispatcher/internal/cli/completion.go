package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// CompletionCommand prints a completion script for a shell.
type CompletionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" placeholder:"SHELL" help:"bash, zsh or fish."`
}

// Help is the text below the summary of completion --help.
func (*CompletionCommand) Help() string {
	return "bash: source <(dispatcher completion bash), in ~/.bashrc for good. zsh: source <(dispatcher " +
		"completion zsh), in ~/.zshrc after compinit. " +
		"fish: dispatcher completion fish > ~/.config/fish/completions/dispatcher.fish."
}

// Run writes the script, which is built from the grammar.
func (cmd *CompletionCommand) Run(parsed *kong.Context, c *console.Console) error {
	nodes := CommandNodes(parsed.Model.Node, nil)
	var b strings.Builder
	switch cmd.Shell {
	case "fish":
		writeFish(&b, nodes)
	case "zsh":
		b.WriteString("autoload -U +X bashcompinit && bashcompinit\n")
		writeBash(&b, nodes)
	default:
		writeBash(&b, nodes)
	}
	if _, err := io.WriteString(c.Out, b.String()); err != nil {
		return fmt.Errorf("write the script: %w", err)
	}
	return nil
}

// commandNode is a command and the words that lead to it.
type commandNode struct {
	Path []string
	Node *kong.Node
}

// CommandNodes returns a command and all commands below it, except hidden ones.
func CommandNodes(n *kong.Node, path []string) []commandNode {
	list := []commandNode{{path, n}}
	for _, child := range n.Children {
		if !child.Hidden {
			list = append(list, CommandNodes(child, append(path[:len(path):len(path)], child.Name))...)
		}
	}
	return list
}

// at is the name of the command in the scripts: /callback/send, or "" for the program.
func (n *commandNode) at() string { return strings.Join(append([]string{""}, n.Path...), "/") }

// children returns the commands directly below, except hidden ones.
func (n *commandNode) children() []*kong.Node {
	return slices.DeleteFunc(slices.Clone(n.Node.Children), func(child *kong.Node) bool {
		return child.Hidden
	})
}

// words returns what can follow the command: its subcommands, the values of an enum argument, and its flags.
func (n *commandNode) words() []string {
	var words []string
	for _, child := range n.children() {
		words = append(words, child.Name)
	}
	for _, p := range n.Node.Positional {
		words = append(words, p.EnumSlice()...)
	}
	for _, flag := range n.Node.Flags {
		words = append(words, "--"+flag.Name)
	}
	return words
}

func writeBash(b *strings.Builder, nodes []commandNode) {
	b.WriteString("_dispatcher() {\n  local word path= i\n  for ((i = 1; i < COMP_CWORD; i++)); do\n    " +
		"word=${COMP_WORDS[i]}\n    case \"$path/$word\" in\n")
	var paths []string
	for i := range nodes[1:] {
		paths = append(paths, nodes[i+1].at())
	}
	fmt.Fprintf(b, "      %s) path=$path/$word ;;\n    esac\n  done\n", strings.Join(paths, "|"))
	// Complete the values of enum flags.
	b.WriteString("  case \"$path ${COMP_WORDS[COMP_CWORD-1]}\" in\n")
	for i := range nodes {
		for _, flag := range nodes[i].Node.Flags {
			if values := flag.EnumSlice(); len(values) > 0 {
				fmt.Fprintf(b, "    %q) COMPREPLY=($(compgen -W %q -- \"${COMP_WORDS[COMP_CWORD]}\")); "+
					"return ;;\n", nodes[i].at()+" --"+flag.Name, strings.Join(values, " "))
			}
		}
	}
	b.WriteString("  esac\n  case \"$path\" in\n")
	for i := range nodes {
		fmt.Fprintf(b, "    %q) COMPREPLY=($(compgen -W %q -- \"${COMP_WORDS[COMP_CWORD]}\")) ;;\n",
			nodes[i].at(), strings.Join(nodes[i].words(), " "))
	}
	b.WriteString("  esac\n}\ncomplete -o default -F _dispatcher dispatcher\n")
}

// fishPath is a fish function that finds the command on the line. It skips words that are no commands, such
// as flags and their values.
const fishPath = `function __dispatcher_at
    set -l path
    for word in (commandline -opc)[2..-1]
        if contains -- "$path/$word" %s
            set path "$path/$word"
        end
    end
    test "$path" = "$argv[1]"
end
`

func writeFish(b *strings.Builder, nodes []commandNode) {
	quoted := func(s string) string {
		first, _, _ := strings.Cut(s, ". ")
		return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(first) + "'"
	}
	var paths []string
	for i := range nodes[1:] {
		paths = append(paths, nodes[i+1].at())
	}
	fmt.Fprintf(b, fishPath, strings.Join(paths, " "))
	for i := range nodes {
		n := &nodes[i]
		when := `'__dispatcher_at "` + n.at() + `"'`
		for _, child := range n.children() {
			fmt.Fprintf(b, "complete -c dispatcher -f -n %s -a %s -d %s\n", when, child.Name,
				quoted(child.Help))
		}
		for _, p := range n.Node.Positional {
			if values := p.EnumSlice(); len(values) > 0 {
				fmt.Fprintf(b, "complete -c dispatcher -f -n %s -a %s\n", when,
					quoted(strings.Join(values, " ")))
			}
		}
		for _, flag := range n.Node.Flags {
			argument := " -r"
			if flag.IsBool() || flag.Name == "help" {
				argument = ""
			}
			if values := flag.EnumSlice(); len(values) > 0 {
				argument = " -x -a " + quoted(strings.Join(values, " "))
			}
			fmt.Fprintf(b, "complete -c dispatcher -n %s -l %s%s -d %s\n", when, flag.Name, argument,
				quoted(flag.Help))
		}
	}
}
