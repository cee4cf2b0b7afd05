import { simulationPart } from './part.ts';

simulationPart(4);
