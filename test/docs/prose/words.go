package prose

import "regexp"

// Word is a word that the project does not use, and what to write for it.
type Word struct {
	Pattern *regexp.Regexp
	Instead string
}

func avoid(pattern, instead string) Word {
	return Word{Pattern: regexp.MustCompile(pattern), Instead: instead}
}

// The one list of such words. Test/docs holds the lines of pages, sources and templates to Everywhere and InGo; the test
// of this package holds the sentences of pages and texts to Everywhere and InSentences.
var (
	// Everywhere are words of ours for what the field has words for.
	Everywhere = []Word{
		avoid(`(?i)rehears`, "dry run"),
		avoid(`(?i)\bsights?\b|[a-z]Sight|Sights`, "observation, tracker"),
		avoid(`(?i)\b(node|deletion|rule|rules|backfill|own|the) rooms?\b`, "controller, reconciler"),
		avoid(`(?i)\boutlook\b`, "next condition"),
		avoid(`(?i)\bfarewell\b`, "shutdown grace"),
		avoid(`(?i)\benact(s|ed)?\b`, "apply"),
		avoid(`(?i)\bstand-in\b`, "fallback"),
		avoid(`(?i)\bslipped past\b`, "missed"),
		avoid(`(?i)\bat (its )?birth\b|\bbirth(Taints|s of)\b`, "on creation"),
		avoid(`internal/worker/(around|guard)\b|internal/worker/net/cause\b`, "environment, recovery, neterror"),
	}
	// InGo are such words that have another meaning on a page or in an alert.
	InGo = []Word{
		avoid(`(?i)\bslipped\b`, "missed"),
		avoid(`\bwakes\b`, "enqueue"),
		avoid(`(?i)\blets? go\b`, "release"),
	}
	// InSentences are words and idioms that are out of place in a sentence for a reader.
	InSentences = []Word{
		avoid(`(?i)\b(mend|heal)(s|ed|ing)?\b`, "fix, recover"),
		avoid(`(?i)\bjudg(e|es|ed|ing)\b`, "evaluate"),
		avoid(`(?i)\bheld against\b`, "counted as a failure of"),
		avoid(`(?i)\boverdue\b`, "past its deadline"),
		avoid(`(?i)\blets? go\b`, "release"),
		avoid(`(?i)\bwakes?\b`, "enqueue"),
		avoid(`(?i)\b(as ever|whatever else)\b`, "nothing, or what it is"),
		avoid(`(?i)\ball the same\b`, "still"),
		avoid(`(?i)\b(in the way of|give it back)\b`, "block, release"),
		avoid(`(?i)\btold to stop\b`, "stopped"),
	}
)
